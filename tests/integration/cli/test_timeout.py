"""``--timeout``."""


def test_a_case_that_takes_too_long_is_a_hang_and_the_rest_is_run(toy_run):
    done = toy_run("--family", "stuck", "--timeout", "1", "--json", "r.jsonl")
    assert done.code == 1, done
    assert done.verdicts() == {
        "stuck/repeat": "exact",
        "stuck/ragged": "hang",
        "stuck/staggered": "exact",
    }
    assert "an end within 1 s; got none after 1 s" in done.out


def test_a_worker_that_no_signal_reaches_is_ended(toy_run):
    done = toy_run("--family", "frozen", "--timeout", "1", "--jobs", "2", "--json", "r.jsonl")
    assert done.code == 1, done
    assert done.verdicts()["frozen/ragged"] == "hang"
    assert done.verdicts()["frozen/staggered"] == "exact"
    assert "toy_plugin.py" in done.out, "the report has where it hung"
