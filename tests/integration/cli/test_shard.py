"""``--shard``, and ``--conformance-shard`` of pytest."""

NAMES = "calm quiet tied other fifth"


def cases(done, name):
    return [result["case"] for result in done.results(name)]


def test_all_shards_together_are_the_whole_run_and_no_family_is_in_two(toy_run):
    options = {"TOY_FAMILIES": NAMES}
    whole = cases(toy_run("--json", "all.jsonl", **options), "all.jsonl")
    parts = []
    for number in (1, 2):
        name = f"{number}.jsonl"
        done = toy_run("--shard", f"{number}/2", "--json", name, "--quiet", **options)
        assert done.code == 0, done
        parts.append(cases(done, name))
    assert sorted(case for part in parts for case in part) == sorted(whole)
    families = [{case.split("/")[1] for case in part} for part in parts]
    assert sorted(map(len, families)) == [2, 3]
    assert sum(map(len, families)) == len(set().union(*families))


def test_pytest_runs_the_same_part_with_workers(suite, toy_run):
    options = {"TOY_FAMILIES": NAMES}
    toy_run("--shard", "2/3", "--json", "a.jsonl", **options)
    arguments = ("--conformance-shard", "2/3", "--conformance-json", "b.jsonl", "-n", "2")
    done = suite(*arguments, **options)
    assert done.code == 0, done
    assert cases(done, "a.jsonl") == cases(done, "b.jsonl")


def test_only_the_first_shard_judges_coverage_and_none_what_is_stale(toy_run, tmp_path):
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "toy.toml").write_text(
        'package = "toy"\n[[defect]]\nid = "padding"\nfamilies = ["gone"]\nversions = ">=1"\n'
        'where = "x.py:1"\nwhy = "x"\nscript = "x.py"\nverdicts = { ragged = "diverged" }\n'
    )
    options = ("--quiet", "--expectations", "known")
    variables = {"TOY_FAMILIES": "calm tied", "TOY_MODULES": "novel"}
    first = toy_run("--shard", "1/2", *options, **variables)
    assert first.code == 1, first
    assert "novel" in first.out
    assert "gone" not in first.out
    second = toy_run("--shard", "2/2", *options, **variables)
    assert second.code == 0, second


def test_a_shard_more_than_there_are_families_is_right_and_empty(toy_run, suite, tmp_path):
    family = ("--family", "calm")
    done = toy_run("--shard", "2/2", *family, "--json", "r.jsonl", "--junit", "j.xml")
    assert done.code == 0, done
    assert "shard 2/2 has no cases" in done.out
    assert done.results() == []
    assert 'tests="0"' in (tmp_path / "j.xml").read_text()
    arguments = ("--conformance-shard", "2/2", "--conformance-family", "calm")
    assert suite(*arguments).code == 0


def test_a_shard_that_makes_no_sense_is_refused(toy_run):
    done = toy_run("--shard=3/2")
    assert done.code == 2
    assert done.err.startswith("conformance: --shard: '3/2' is not K/N")
