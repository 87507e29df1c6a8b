"""``--family``."""


def test_globs_select_families(toy_run):
    done = toy_run("--family", "c*m", "--family", "quiet", "--json", "r.jsonl")
    assert {r["family"] for r in done.results()} == {"calm", "quiet"}


def test_a_glob_that_matches_nothing_is_one_sentence(toy_run):
    done = toy_run("--family", "nope*")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("conformance: no family matches 'nope*'; there are ")
    assert done.err.count("\n") == 1
