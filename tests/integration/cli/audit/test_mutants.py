"""``conformance audit mutants``: what becomes of mutants of a toy library, and of its processes."""

from collections import Counter

import pytest

PLUGIN = {"TOY_PLUGIN": "mutants_plugin"}
ARGUMENTS = ("--library", "toy", "--module", "toy/*.py", "--family", "calm", "--jobs", "1")


@pytest.fixture
def mutants(conformance):
    return lambda *more: conformance("audit", "mutants", *ARGUMENTS, *more, **PLUGIN)


@pytest.fixture(scope="module")
def whole(in_folder, tmp_path_factory):
    """What became of all mutants."""
    conformance = in_folder(tmp_path_factory.mktemp("mutants"))
    return conformance("audit", "mutants", *ARGUMENTS, "--json", "r.jsonl", **PLUGIN)


def fates(done, name="r.jsonl"):
    return {
        (line["mutant"]["before"], line["mutant"]["after"]): line["fate"]
        for line in done.results(name)
    }


def test_each_mutant_has_its_fate_and_one_that_ends_or_holds_its_process_costs_no_other(whole):
    done = whole
    assert done.code == 1, done
    found = fates(done)
    assert found["best = length", "best = None"] == "killed"
    assert found["best = 0", "best = 1"] == "survived"
    assert found["return 1", "return 2"] == "unreached"
    assert found["if length > best:", "if length >= best:"] == "survived"
    assert "survived: toy/batching.py:16 longest (number)" in done.out
    assert "FAILED: toy: " in done.out
    # It leaves something behind, which must be held against no later mutant.
    assert found["left = False", "left = True"] == "killed"
    kills = {line["mutant"]["after"]: line.get("kill") for line in done.results()}
    crash, hang = kills["stop = True"], kills["waiting = True"]
    assert (crash["verdict"], crash["what"]) == ("crash", "its process ended with exit code 3")
    assert (hang["verdict"], hang["what"]) == ("hang", "it took more than 2 s")


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
    assert "unreached: toy/batching.py finish: 1 of 3 lines: 26" in done.out
    assert "unreached: toy/batching.py unused: 1 of 1 lines: 36" in done.out
    assert "4 lines are not reached in 4 functions; 0 have a reason" in done.out


@pytest.mark.nightly
def test_a_run_goes_on_where_it_stopped(mutants, tmp_path):
    more = ("--function", "longest", "--function", "unused", "--json", "r.jsonl")
    stopped = mutants(*more, "--minutes", "0")
    assert stopped.code == 2, stopped
    assert "r.jsonl.partial has it: --resume goes on" in stopped.out
    assert not (tmp_path / "r.jsonl").exists()
    before = stopped.results("r.jsonl.partial")
    assert {line["fate"] for line in before} == {"unreached"}
    done = mutants(*more, "--resume")
    assert done.code == 1, done
    assert len(done.results()) > len(before)
    assert not (tmp_path / "r.jsonl.partial").exists()


@pytest.mark.nightly
def test_survivors_are_tried_again_and_files_are_merged(whole, mutants, conformance):
    first = whole.folder / "r.jsonl"
    again = mutants("--again", first, "--json", "again.jsonl")
    survived = [line for line in whole.results() if line["fate"] == "survived"]
    assert survived
    assert len(again.results("again.jsonl")) == len(survived)
    merging = ("--read", first, "--read", "again.jsonl", "--json", "both.jsonl")
    both = conformance("audit", "mutants", *merging)
    assert fates(both, "both.jsonl") == fates(whole)


def test_a_report_has_a_page_of_mutants(whole, conformance, toy_run, tmp_path):
    toy_run("--family", "calm", "--json", "results.jsonl")
    mutants = whole.folder / "r.jsonl"
    assert conformance("report", "results.jsonl", "--mutants", mutants).code == 2
    done = conformance("report", "results.jsonl", "--mutants", mutants, "--html", "pages")
    assert done.code == 0, done
    page = (tmp_path / "pages" / "mutants.html").read_text()
    found = Counter(line["fate"] for line in whole.results())
    tried = found["killed"] + found["survived"]
    said = f"{found['killed']} of {tried} mutants that are reached and not equivalent were killed"
    assert said in page
    assert 'href="mutants.html">Mutants</a>' in (tmp_path / "pages" / "index.html").read_text()


@pytest.mark.nightly
def test_a_sample_is_the_same_for_the_same_seed(mutants):
    drawn = ("--function", "longest", "--function", "unused", "--sample", "1", "--seed", "7")
    one = mutants(*drawn, "--json", "one.jsonl").results("one.jsonl")
    two = mutants(*drawn, "--json", "two.jsonl").results("two.jsonl")
    assert sum(line["fate"] != "unreached" for line in one) == 1
    assert {str(line["mutant"]) for line in one} == {str(line["mutant"]) for line in two}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--module", "toy/nothing.py"), "no file of"),
        (("--function", "nothing"), "--function: nothing of these files matches nothing"),
        (("--resume",), "--resume goes on with a file: name it with --json"),
        (("--read", "other.jsonl"), "other.jsonl, line 1: not a result of"),
        (("--reviewed", "other.jsonl"), "other.jsonl: not TOML"),
    ],
)
def test_a_mistake_ends_in_a_sentence(mutants, tmp_path, more, sentence):
    (tmp_path / "other.jsonl").write_text('{"case": "x"}\n')
    done = mutants(*more)
    assert done.code == 2, done
    assert sentence in done.err
    assert "Traceback" not in done.err
