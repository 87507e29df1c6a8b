"""``-x``."""

import pytest


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_it_stops_at_the_first_unexpected_verdict(toy_run, jobs):
    done = toy_run(
        *("--family", "broken", "--family", "[qst]*", "--jobs", jobs, "-x", "--json", "r.jsonl"),
        TOY_SECONDS="0.1",
        TOY_FAMILIES="broken quiet silent tied",
    )
    assert done.code == 1, done
    assert done.verdicts()["broken/ragged"] == "diverged"
    assert len(done.results()) < 12
    assert "not run" in done.out
    assert done.err == ""


def test_an_expected_defect_does_not_stop_it(toy_run):
    done = toy_run("--family", "calm", "-x")
    assert done.code == 0
