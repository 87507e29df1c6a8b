"""``conformance golden``: update, check and diff, on miniatures."""

import os
import subprocess
import sys

import pytest
from toy.golden_plugin import contents, make_goldens

TOY = {"TOY_PLUGIN": "golden_plugin"}


@pytest.fixture
def golden(conformance):
    """The ``conformance golden`` command, in one process."""

    def run(command, *arguments, **variables):
        engine = [] if command == "diff" or "--engine" in arguments else ["--engine", "toy"]
        jobs = [] if command == "diff" or "--jobs" in arguments else ["--jobs", "1"]
        return conformance("golden", command, *engine, *jobs, *arguments, **TOY, **variables)

    return run


@pytest.fixture
def made(tmp_path):
    """The folder of goldens of two families."""
    make_goldens(tmp_path / "golden")
    return tmp_path / "golden" / "toy"


def test_new_goldens_are_reported_and_written_and_hold(golden, tmp_path):
    done = golden("update")
    assert done.code == 2, done
    assert done.out.splitlines() == ["toy/calm: new", "toy/large: new", "2 families: 2 new"]
    assert done.err.strip() == (
        "conformance: 2 files would be written: where there is no terminal, this needs --yes"
    )
    folder = tmp_path / "golden"
    assert golden("update", "--yes", "--golden", folder).code == 0
    assert sorted(contents(folder)) == ["calm.json", "large.json"]
    done = golden("check")
    assert (done.code, done.out) == (0, "2 goldens: 2 hold\n"), done


def test_a_changed_recipe_is_reported_in_full_and_the_other_family_is_not_touched(golden, made):
    before = contents(made)
    done = golden("check", "--files-only", TOY_SCALES="large=1.5")
    assert done.code == 1
    assert "large.json: stale: the family's config, weights recipe or prompts" in done.out
    done = golden("update", "--yes", TOY_SCALES="large=1.5")
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0].startswith("toy/large: ")
    assert any(line.startswith("    recipe: ") for line in lines)
    assert any("times the noise" in line for line in lines)
    assert "2 families: 1 " in done.out
    after = contents(made)
    assert after["calm.json"] == before["calm.json"]
    assert after["large.json"] != before["large.json"]
    assert golden("check", TOY_SCALES="large=1.5").code == 0


def test_an_update_of_what_holds_writes_nothing(golden, made):
    stamps = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    done = golden("update")
    assert done.code == 0, done
    assert done.out.splitlines() == ["2 families: 2 unchanged"]
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == stamps


def test_a_refusal_or_a_crash_keeps_the_old_file_and_the_others_go_on(golden, made):
    before = contents(made)
    scales = {"TOY_SCALES": "*=2", "TOY_FAMILIES": "calm deadly large"}
    done = golden(
        "update", "--yes", "--jobs", "2", TOY_INSENSITIVE="calm", TOY_DEADLY="deadly", **scales
    )
    assert done.code == 1, done
    assert "toy/calm: refused: the model is insensitive" in done.out
    assert "toy/deadly: refused: its process crashed" in done.out
    after = contents(made)
    assert after.keys() == before.keys()
    assert after["calm.json"] == before["calm.json"]
    assert after["large.json"] != before["large.json"]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_an_update_needs_confirmation(made, environment, tmp_path, answer, code):
    before = contents(made)
    command = "from conformance.app.cli import main; main()"
    words = ("golden", "update", "--engine", "toy", "--jobs", "1")
    mine, theirs = os.openpty()
    os.write(mine, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-c", command, *words],
        stdin=theirs,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment, **TOY, "TOY_SCALES": "calm=2"},
        check=False,
    )
    os.close(mine)
    os.close(theirs)
    assert done.returncode == code, done
    assert "write 1 files? [y/N]:" in done.stdout
    assert (contents(made) == before) == (answer == "n")


def test_a_family_that_is_listed_without_a_golden_may_be_refused(golden, made):
    (made.parent / "without.toml").write_text('[toy]\ncalm = "it is dull"\n')
    (made / "calm.json").unlink()
    done = golden("update", "--yes", TOY_INSENSITIVE="calm")
    assert done.code == 0, done
    assert "toy/calm: refused (listed in without.toml): the model is insensitive" in done.out
    assert golden("check").code == 0


def test_a_wrong_batch_is_reported(golden, made):
    done = golden("check", "--engine", "padded")
    assert done.code == 1
    assert "toy/calm: the batch differs; the single stream still gives the golden" in done.out
    assert "batched against golden (padded, batch ragged): request " in done.out
    assert "single stream against golden" not in done.out


def test_an_edit_by_hand_and_an_orphan_are_reported(golden, made):
    text = (made / "calm.json").read_text()
    (made / "gone.json").write_text(text)
    (made / "calm.json").write_text(text.replace('"abacus"', '"slide rule"'))
    done = golden("check", "--files-only")
    assert done.code == 1
    assert "calm.json: field 'digest' does not fit the content" in done.out
    assert "gone.json: an orphan: library 'toy' has no family 'gone'" in done.out


def test_two_folders_are_compared(golden, made, tmp_path):
    make_goldens(tmp_path / "new", scales={"large": "1.5"})
    done = golden("diff", "golden", "new")
    assert done.code == 1
    assert done.out.startswith("toy/large: ")
    assert "toy/calm" not in done.out
    assert done.out.splitlines()[-1] == "2 goldens compared"
    done = golden("diff", "golden/toy/calm.json", "new/toy/calm.json")
    assert (done.code, done.out) == (0, "1 goldens compared\n")


def test_a_golden_on_one_side_is_reported(golden, made, tmp_path):
    make_goldens(tmp_path / "new")
    (tmp_path / "new" / "toy" / "calm.json").unlink()
    done = golden("diff", "golden", "new")
    assert (done.code, done.out.splitlines()[0]) == (1, "toy/calm: only in golden")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("check", "--golden", "lost"), "lost: no folder of goldens is there"),
        (("update", "--family", "x*"), "no family matches 'x*'"),
        (("diff", ".", "."), ". and .: neither folder holds a golden"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_ends_in_one_sentence(golden, arguments, sentence):
    done = golden(*arguments)
    assert done.code == 2, done
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1
