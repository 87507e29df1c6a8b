"""``run --explain-seconds``: failures are explained in processes that may hang or crash."""

import sys
import time

import msgspec
import psutil
import pytest
from click.testing import CliRunner
from html_pictures import make_explanation
from results_by_hand import make_finding, make_result

from conformance.app.cli import auto_explain
from conformance.app.cli.main import group
from conformance.core import processes
from conformance.core.verdict import Verdict, encode
from conformance.report import Outcome
from conformance.scenarios import LADDER

SCENARIOS = {scenario.name: scenario for scenario in LADDER}
# What a child does, by the family of its case.
SCRIPTS = {
    "llama": "import sys; open(sys.argv[1], 'w').write(sys.argv[2])",
    "hangs": "import time; time.sleep(60)",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
}


def failing(family, scenario="ragged", verdict=Verdict.DIVERGED, **changes):
    case = f"mlx_lm/{family}/{scenario}/float32/0"
    return make_result(case, verdict, evidence=(make_finding(verdict, **changes),))


def outcome(*results):
    return Outcome(results, tuple(SCENARIOS))


@pytest.fixture
def children(monkeypatch):
    """Scripts in place of the command; the arguments that it would have been given."""
    given = []

    def start(arguments):
        given.append(arguments)
        family = arguments[1].split("/")[1]
        file = arguments[arguments.index("--json") + 1]
        text = encode(make_explanation())
        return processes.start([sys.executable, "-c", SCRIPTS[family], file, text])

    monkeypatch.setattr(auto_explain, "start_child", start)
    made_of = make_result().versions
    monkeypatch.setattr(auto_explain, "versions_of", lambda name: {name: made_of.get(name)})
    return given


def test_one_that_hangs_or_crashes_costs_only_itself(children, capsys):
    found = outcome(failing("hangs"), failing("crashes"), failing("llama"))
    before = set(psutil.Process().children())  # a browser of another test, for example
    begin = time.monotonic()
    after = auto_explain.with_explanations(found, SCENARIOS, seconds=8, jobs=2)
    assert time.monotonic() - begin < 8, "one explanation gets half of the time"
    explanation = make_explanation()
    assert after.explanations == {explanation.case: explanation}
    assert capsys.readouterr().err.startswith("explained 1 of 3 failures in ")
    assert set(psutil.Process().children()) <= before


def test_the_time_for_all_is_kept(children):
    found = outcome(*(failing("hangs", name) for name in ("ragged", "chunked")), failing("llama"))
    before = set(psutil.Process().children())  # a browser of another test, for example
    begin = time.monotonic()
    auto_explain.with_explanations(found, SCENARIOS, seconds=1, jobs=1)
    assert time.monotonic() - begin < 5
    assert set(psutil.Process().children()) <= before


def test_the_first_failure_alone_is_explained_where_no_limit_was_chosen(conformance):
    toys = ("run", "--engine", "toy", "--jobs", "1", "--family", "broken", "--family", "tied")
    err = conformance(*toys, "--no-expectations").err
    assert "explained 0 of 1 failures in " in err
    assert "; with more time: conformance explain toy/" in err


def test_what_is_explained_already_is_not_explained_again(children, tmp_path):
    explanation = make_explanation()
    known = {explanation.case: explanation}
    found = Outcome((failing("llama"),), tuple(SCENARIOS), explanations=known)
    assert auto_explain.with_explanations(found, SCENARIOS, seconds=9, jobs=1) is found
    file = tmp_path / "r.jsonl"
    file.write_text(f"{encode(failing('llama'))}\n")
    report = ["report", str(file), "--annotations", "--to", str(tmp_path / "s.md")]
    done = CliRunner().invoke(group, [*report, "--explain-seconds", "20"])
    assert done.exit_code == 1, done.output
    assert len(children) == 1
    assert "first" not in done.stdout
    assert "begins at model.layers.2 (Attention)" in done.stdout


def test_nothing_is_explained_where_there_is_no_time_or_no_failure(children):
    found = outcome(failing("llama"))
    assert auto_explain.with_explanations(found, SCENARIOS, seconds=0, jobs=1) is found
    good = outcome(make_result())
    assert auto_explain.with_explanations(good, SCENARIOS, seconds=9, jobs=1) is good
    assert children == []


def test_what_other_code_has_played_is_not_explained(children, capsys, monkeypatch):
    old = msgspec.structs.replace(failing("old"), versions={"mlx": "0.32.4", "mlx-lm": "0.32.1"})
    source = {"mlx-lm": "0.33.0", "mlx-lm source": "/home/runner/mlx-lm@efd75d78"}
    branch = msgspec.structs.replace(failing("llama"), versions=source)
    auto_explain.with_explanations(outcome(old, branch), SCENARIOS, seconds=9, jobs=1)
    assert children == []
    assert "not explained: 2 failures of other versions than are here" in capsys.readouterr().err
    here = source | {"mlx-lm source": "/home/me/mlx-lm@efd75d78"}
    monkeypatch.setattr(auto_explain, "versions_of", lambda name: here)
    found = outcome(old, branch)
    after = auto_explain.with_explanations(found, SCENARIOS, seconds=9, jobs=1)
    assert len(after.explanations) == len(children) == 1


def test_the_command_gets_the_schedule_that_is_new_and_the_run_s_options(children):
    known = make_finding(Verdict.CRASH, schedule="known", known="old-defect")
    new = make_finding(schedule="new")
    case = "mlx_lm/llama/ragged/float32/0"
    found = outcome(make_result(case, Verdict.CRASH, known="old-defect", evidence=(known, new)))
    options = ("--family-file", "my.json")
    auto_explain.with_explanations(found, SCENARIOS, seconds=20, jobs=1, options=options)
    (arguments,) = children
    assert arguments[:4] == ["explain", case, "--schedule", "new"]
    assert tuple(arguments[-2:]) == options


def test_the_lowest_of_each_finding_comes_first_then_that_of_each_other_family():
    engine = {"cause": "", "check": "free"}
    many = [failing(f"f{n}", name) for n in range(6) for name in ("ragged", "chunked")]
    leak = failing("f0", "early_finish", Verdict.LEAK, **engine)
    oracle = failing("other", "repeat", Verdict.ORACLE, check="stateless")
    lost = failing("other", "early_finish", Verdict.PROTOCOL)
    found = outcome(*many, leak, oracle, lost)
    assert [len(one.families) for one in found.cascades] == [1, 1, 6, 1]
    chosen = [result.case.split("/")[1:3] for result in auto_explain.lowest(found, SCENARIOS)]
    assert chosen == [["other", "early_finish"], *([f"f{n}", "ragged"] for n in range(6))]


def test_an_explanation_that_fails_leaves_the_run_as_it_is(toy_run):
    done = toy_run("--family", "broken", "--explain-seconds", "60")
    assert done.code == 1, done
    assert "explained 0 of 1 failures in " in done.err
    assert (
        "broken: 1 case fails, at `ragged`: the token differs from the single stream." in done.out
    )
    assert "explained" not in toy_run("--family", "broken").err


def test_a_number_of_seconds_is_wanted(toy_run):
    done = toy_run("--family", "broken", "--explain-seconds", "-1")
    assert done.code == 2, done
    assert "--explain-seconds" in done.err
