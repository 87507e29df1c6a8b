"""``conformance run --against``: only what is worse than in an earlier run counts."""

import json

import pytest

BASE = "base.jsonl"


@pytest.fixture
def run(toy_run):
    """A run of families of which one is right, with no known defect."""

    def call(*arguments):
        return toy_run("--no-expectations", *arguments, TOY_FAMILIES="calm broken silent")

    return call


@pytest.fixture
def rewrite(run, tmp_path):
    """The results of such a run; then again with changes made by hand."""
    assert run("--json", BASE).code == 1

    def change(which, **fields):
        file = tmp_path / BASE
        results = [json.loads(line) for line in file.read_text().splitlines()]
        header, *cases = results
        changed = [header, *(r | fields if which(r) else r for r in cases)]
        file.write_text("".join(json.dumps(result) + "\n" for result in changed))
        return sum(map(which, cases))

    return change


@pytest.mark.usefixtures("rewrite")
def test_a_run_that_fails_as_before_passes(run):
    done = run("--against", BASE)
    assert done.code == 0, done
    assert f"none worse than in {BASE}" in done.out
    assert "rerun:" not in done.out


def test_only_what_is_worse_is_listed_and_fails(run, rewrite):
    rewrite(
        lambda r: r["case"].startswith("toy/broken/ragged"),
        verdict="exact",
        schedules=[],
        evidence=[],
    )
    done = run("--against", BASE, "--json", "r.jsonl")
    assert done.code == 1, done
    assert f"1 of 9 cases worse than in {BASE}" in done.out
    assert done.out.count("rerun:") == 1
    assert "diverged: toy/broken/ragged/float32/0" in done.out
    assert "diverged: toy/broken/staggered" not in done.out
    # The result file is that of any run.
    assert sum(not r["expected"] for r in done.results()) > 1


def test_lost_coverage_of_what_was_selected_is_one_line_and_fails_the_run(run, rewrite):
    rewrite(
        lambda r: r["case"].startswith("toy/calm/ragged"),
        case="toy/calm/gone/float32/0",
        scenario="gone",
    )
    done = run("--against", BASE, "--family", "calm")
    assert done.code == 1, done
    lost = f"lost coverage: 1 case right in {BASE} and not played now: toy/calm/gone/float32/0"
    assert lost in done.out
    assert "lost coverage" not in run("--against", BASE, "--family", "broken").out


@pytest.mark.usefixtures("rewrite")
def test_mistakes_are_one_sentence(run):
    assert run("--against", "nowhere.jsonl").code == 2
    both = run("--against", BASE, "-x")
    assert (both.code, both.out) == (2, "")
    assert "choose one of them" in both.err
