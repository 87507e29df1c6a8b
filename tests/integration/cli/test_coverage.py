"""A library's module that nobody covers."""


def test_an_uncovered_module_fails_a_whole_run(toy_run):
    done = toy_run("--json", "r.jsonl", TOY_FAMILIES="calm", TOY_MODULES="novel")
    assert done.code == 1, done
    assert "neither a family nor a reasoned exclusion: novel" in done.out
    assert "1 other problem" in done.out
    assert set(done.verdicts().values()) == {"exact"}
