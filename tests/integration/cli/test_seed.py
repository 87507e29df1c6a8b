"""``--seed``."""


def test_seeds_are_run_and_share_a_cell(toy_run):
    done = toy_run("--family", "broken", "--seed", "3", "--seed", "5", "--json", "r.jsonl")
    assert sorted({r["seed"] for r in done.results()}) == [3, 5]
    assert "toy float32: 1 family x 3 scenarios" in done.out
    assert "FAILED: 2 of 6 cases" in done.out


def test_a_negative_seed_is_refused(toy_run):
    assert toy_run("--seed", "-1").code == 2
