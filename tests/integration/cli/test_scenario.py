"""``--scenario``."""


def test_scenarios_are_selected(toy_run):
    done = toy_run("--family", "calm", "--scenario", "r*", "--json", "r.jsonl")
    assert [r["scenario"] for r in done.results()] == ["repeat", "ragged"]


def test_an_unknown_scenario_is_one_sentence(toy_run):
    done = toy_run("--scenario", "nope")
    assert done.code == 2
    assert done.err.startswith("conformance: no scenario matches 'nope'")
