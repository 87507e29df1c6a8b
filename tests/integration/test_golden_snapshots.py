"""Goldens as items of the suite: compared, updated by ``--snapshot-update``, under xdist too."""

import pytest
from toy.golden_plugin import contents, make_goldens

from conformance.tools.golden.format import load_golden

TOY = {"TOY_PLUGIN": "golden_plugin"}
ITEM = "conformance.suite.goldens::golden[toy/{}]"
LEAN = ("-p", "no:hypothesispytest", "-p", "no:anyio", "-q")


@pytest.fixture
def goldens(suite):
    """The suite's items for goldens."""

    def run(*arguments, **variables):
        return suite("-k", "goldens", "-q", *arguments, **TOY, **variables)

    return run


@pytest.fixture
def made(tmp_path):
    """The folder of goldens of two families, where the suite looks for it."""
    make_goldens(tmp_path / "golden")
    return tmp_path / "golden" / "toy"


def test_there_is_an_item_for_each_golden_and_one_for_the_folder(goldens, made):
    done = goldens("-vv", "--no-header")
    assert done.code == 0, done
    assert [line.split()[0] for line in done.out.splitlines() if "PASSED" in line] == [
        ITEM.format("calm"),
        ITEM.format("large"),
        "conformance.suite.goldens::folder",
    ]
    assert "2 snapshots passed." in done.out


def test_one_golden_alone_in_another_folder(start, made, tmp_path):
    made.parent.rename(tmp_path / "mine")
    where = ("--conformance-golden", "mine", "--conformance-engine", "toy")
    done = start("-m", "pytest", *LEAN, "--pyargs", ITEM.format("calm"), *where, **TOY)
    assert done.code == 0, done
    assert "1 passed" in done.out


@pytest.mark.parametrize(
    "arguments",
    [("--conformance-golden", ""), ("--conformance-scenario", "ragged"), ("-p", "no:syrupy")],
    ids=["no folder", "scenarios picked", "no syrupy"],
)
def test_where_none_is_meant_there_are_none(goldens, made, arguments):
    if "--conformance-golden" in arguments:
        made.parent.rename(made.parents[1] / "mine")
    done = goldens("--collect-only", *arguments)
    assert done.code == 5, done
    assert "golden[" not in done.out


def test_a_wrong_batch_fails_with_its_comparison_and_the_command_that_reruns_it(goldens, made):
    done = goldens("--conformance-engine", "padded", "--conformance-family", "calm")
    assert done.code == 1, done
    meaning = "the batch differs; the single stream still gives the golden"
    assert f"toy/calm: {meaning}\n    batched against golden (padded, batch " in done.out
    assert "single stream against golden" not in done.out
    assert "rerun: conformance golden check --engine 'toy*' --family calm" in done.out
    assert "Traceback" not in done.out


def test_what_is_stale_missing_edited_or_an_orphan_is_reported(goldens, made):
    (made / "gone.json").write_bytes((made / "calm.json").read_bytes())
    (made / "notes.txt").touch()
    path = made / "calm.json"
    path.write_text(path.read_text().replace('"abacus"', '"slide rule"'))
    done = goldens(TOY_SCALES="large=1.01", TOY_FAMILIES="calm large new")
    assert "4 failed" in done.out, done
    assert "golden/toy/calm.json: field 'digest' does not fit the content" in done.out
    assert (
        "golden/toy/large.json: stale: the family's config, weights recipe or prompts" in done.out
    )
    assert "golden/toy/new.json: missing; `conformance golden update` makes it" in done.out
    assert "gone.json: an orphan: library 'toy' has no family 'gone'" in done.out
    assert "notes.txt: no golden by its name" in done.out
    assert "Traceback" not in done.out


def test_an_update_writes_what_changed_through_the_gate_and_deletes_nothing(goldens, made):
    (made / "gone.json").write_bytes((made / "calm.json").read_bytes())
    (made / "hurt.json").write_text("{")
    before = contents(made)
    names = {"TOY_FAMILIES": "calm dull hurt large", "TOY_INSENSITIVE": "dull"}
    done = goldens("--snapshot-update", TOY_SCALES="large=1.5,dull=1.5", **names)
    assert done.code == 1, done
    assert "toy/dull: no golden: the model is insensitive" in done.out
    assert "1 snapshot passed. 2 snapshots updated." in done.out
    after = contents(made)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"hurt.json", "large.json"}
    assert after.keys() == before.keys()
    assert load_golden(made / "hurt.json").family == "hurt"


def test_an_update_with_an_engine_that_is_wrong_writes_what_is_right(goldens, made):
    before = contents(made)
    (made / "calm.json").unlink()
    assert goldens("--snapshot-update", "--conformance-engine", "padded").code == 0
    assert contents(made) == before


def test_conformance_run_leaves_goldens_out(toy_run, made):
    done = toy_run("--family", "calm", **TOY)
    assert done.code == 0, done
    assert "OK: 1 case" in done.out


def test_two_workers_lose_none_of_forty(goldens, tmp_path):
    """Made, then all made anew with other weights: nothing is lost, nothing is left half."""
    (tmp_path / "golden").mkdir()
    folder = tmp_path / "golden" / "toy"
    seen = []
    for scales in ("", "*=1.5"):
        done = goldens("-n", "2", "--snapshot-update", TOY_COUNT="40", TOY_SCALES=scales)
        assert done.code == 0, done
        assert len(list(folder.iterdir())) == 40
        seen.append(contents(folder))
    made, anew = seen
    assert all(made[name] != anew[name] for name in made)
    for path in folder.iterdir():
        assert load_golden(path).family == path.stem
