"""``conformance audit mutants``: what becomes of mutants of a toy library, and of its processes."""

import pytest

PLUGIN = {"TOY_PLUGIN": "mutants_plugin"}
ARGUMENTS = ("--library", "toy", "--module", "toy/*.py", "--family", "calm", "--jobs", "1")


@pytest.fixture
def mutants(conformance):
    return lambda *more: conformance("audit", "mutants", *ARGUMENTS, *more, **PLUGIN)


def fates(done, name="r.jsonl"):
    return {
        (line["mutant"]["before"], line["mutant"]["after"]): line["fate"]
        for line in done.results(name)
    }


def test_each_mutant_has_its_fate(mutants):
    done = mutants("--json", "r.jsonl")
    assert done.code == 1, done
    found = fates(done)
    assert found["best = length", "best = None"] == "killed"
    assert found["best = 0", "best = 1"] == "survived"
    assert found["return 1", "return 2"] == "unreached"
    assert found["if length > best:", "if length >= best:"] == "survived"
    assert "survived: toy/batching.py:7 longest (number)" in done.out
    assert "FAILED: toy: " in done.out


def test_a_mutant_that_ends_its_process_is_killed_and_costs_no_other(mutants):
    done = mutants("--function", "finish", "--json", "r.jsonl")
    lines = {line["mutant"]["after"]: line for line in done.results()}
    kill = lines["stop = True"]["kill"]
    assert (lines["stop = True"]["fate"], kill["verdict"]) == ("killed", "crash")
    assert kill["what"] == "its process ended with exit code 3"
    assert lines["stop = None"]["fate"] == "survived"


def test_a_reviewed_mutant_is_equivalent_and_a_reason_is_given(mutants, tmp_path):
    (tmp_path / "reviewed.toml").write_text(
        '[[equivalent]]\nmodule = "toy/batching.py"\nfunction = "longest"\n'
        'before = "if length > best:"\nafter = "if length >= best:"\nreason = "the same number"\n'
        '[[unreached]]\nmodule = "toy/*"\nfunction = "unused"\nreason = "nobody calls it"\n'
    )
    more = ("--reviewed", "reviewed.toml", "--function", "longest", "--function", "unused")
    lines = mutants(*more, "--json", "r.jsonl").results()
    whys = {line["mutant"]["after"]: (line["fate"], line.get("why")) for line in lines}
    assert whys["if length >= best:"] == ("equivalent", "the same number")
    assert whys["return 2"] == ("unreached", "nobody calls it")


def test_unreached_lines_are_listed(mutants):
    done = mutants("--unreached")
    assert done.code == 0, done
    assert "unreached: toy/batching.py finish: 1 of 3 lines: 17" in done.out
    assert "unreached: toy/batching.py unused: 1 of 1 lines: 21" in done.out
    assert "2 lines are not reached in 2 functions; 0 have a reason" in done.out


def test_a_run_goes_on_where_it_stopped(mutants, tmp_path):
    stopped = mutants("--json", "r.jsonl", "--minutes", "0")
    assert stopped.code == 2, stopped
    assert "r.jsonl.partial has it: --resume goes on" in stopped.out
    assert not (tmp_path / "r.jsonl").exists()
    before = stopped.results("r.jsonl.partial")
    assert {line["fate"] for line in before} == {"unreached"}
    done = mutants("--json", "r.jsonl", "--resume")
    assert done.code == 1, done
    assert len(done.results()) > len(before)
    assert not (tmp_path / "r.jsonl.partial").exists()


def test_survivors_are_tried_again_and_files_are_merged(mutants, conformance):
    first = mutants("--json", "r.jsonl")
    again = mutants("--again", "r.jsonl", "--json", "again.jsonl")
    survived = [line for line in first.results() if line["fate"] == "survived"]
    assert len(again.results("again.jsonl")) == len(survived)
    merging = ("--read", "r.jsonl", "--read", "again.jsonl", "--json", "both.jsonl")
    both = conformance("audit", "mutants", *merging)
    assert fates(both, "both.jsonl") == fates(first)


def test_a_sample_is_the_same_for_the_same_seed(mutants):
    one = mutants("--sample", "3", "--seed", "7", "--json", "one.jsonl").results("one.jsonl")
    two = mutants("--sample", "3", "--seed", "7", "--json", "two.jsonl").results("two.jsonl")
    assert sum(line["fate"] != "unreached" for line in one) == 3
    assert {str(line["mutant"]) for line in one} == {str(line["mutant"]) for line in two}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--module", "toy/nothing.py"), "no file of"),
        (("--function", "nothing"), "--function: nothing of these files matches nothing"),
        (("--resume",), "--resume goes on with a file: name it with --json"),
        (("--read", "other.jsonl"), "other.jsonl, line 1: not a result of"),
        (("--reviewed", "other.jsonl"), "other.jsonl: not a file of reviewed mutants"),
    ],
)
def test_a_mistake_ends_in_a_sentence(mutants, tmp_path, more, sentence):
    (tmp_path / "other.jsonl").write_text('{"case": "x"}\n')
    done = mutants(*more)
    assert done.code == 2, done
    assert sentence in done.err
    assert "Traceback" not in done.err
