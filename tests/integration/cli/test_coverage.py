"""A library's module that nobody covers."""


def test_an_uncovered_module_fails_a_whole_run(toy_run):
    done = toy_run("--json", "r.jsonl", TOY_FAMILIES="calm", TOY_MODULES="novel")
    assert done.code == 1, done
    assert "neither a family nor a reasoned exclusion: novel" in done.out
    assert "1 other problem" in done.out
    assert set(done.verdicts().values()) == {"exact"}


def test_workers_find_it_too(toy_run):
    done = toy_run("--jobs", "2", TOY_FAMILIES="calm", TOY_MODULES="novel")
    assert done.code == 1, done
    assert "reasoned exclusion: novel" in done.out


def test_a_part_of_the_cases_is_not_judged_for_coverage(toy_run):
    done = toy_run("--family", "calm", TOY_MODULES="novel")
    assert done.code == 0, done


def test_a_whole_run_of_what_is_covered_is_good(toy_run):
    done = toy_run(TOY_FAMILIES="calm tied")
    assert done.code == 0, done
