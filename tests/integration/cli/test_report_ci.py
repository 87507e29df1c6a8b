"""``conformance report`` for a CI system: summary, annotations, badge, JUnit, exit codes."""

import json
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner
from results_by_hand import make_result

from conformance.app.cli.main import group
from conformance.core.contracts import Cost
from conformance.core.run_header import RunHeader
from conformance.core.verdict import (
    Finding,
    ScheduleResult,
    Verdict,
)
from conformance.report.cost_table import BEGIN, END
from conformance.report.jsonl import write_results

SCENARIOS = ("repeat", "ragged", "staggered")


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The command in this process: it reads files and runs nothing."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **variables):
        step = variables.get("GITHUB_STEP_SUMMARY")
        return CliRunner().invoke(group, ["report", *arguments], env={"GITHUB_STEP_SUMMARY": step})

    return run


def result(family, scenario):
    wrong = (family, scenario) == ("broken", "ragged")
    verdict = Verdict.DIVERGED if wrong else Verdict.EXACT
    return make_result(
        f"toy/{family}/{scenario}/float32/0",
        verdict,
        evidence=(Finding(verdict, "tokens", "the token differs"),) if wrong else (),
        versions={"toy": "1.2.3"},
        device="abacus",
        invocation=None,
    )


@pytest.fixture
def files(tmp_path):
    """``all.jsonl`` of a run, and ``1.jsonl`` and ``2.jsonl``, which have a family of it each."""
    found = [result(family, name) for family in ("broken", "calm") for name in SCENARIOS]
    for name, part in (("all", found), ("1", found[:3]), ("2", found[3:])):
        write_run(tmp_path / f"{name}.jsonl", part)


def write_run(path, results):
    """The file of a run that played all it was to play."""
    write_results(path, results, RunHeader(len(results)))


def known(folder, name, family, verdict):
    """A folder ``known`` with one entry, about ``ragged``."""
    (folder / "known").mkdir()
    (folder / "known" / "toy.toml").write_text(
        f'package = "toy"\n[[defect]]\nid = "{name}"\nfamilies = ["{family}"]\nversions = ">=1"\n'
        f'where = "x.py:1"\nwhy = "x"\nscript = "x.py"\nverdicts = {{ ragged = "{verdict}" }}\n'
    )


@pytest.mark.parametrize(
    ("name", "family", "code"),
    [("padding", "broken", 0), ("padding", "calm", 1), ("another", "calm", 1)],
)
def test_that_a_file_calls_a_defect_known_is_not_believed(
    report, files, tmp_path, name, family, code
):
    wrong = msgspec.structs.replace(result("broken", "ragged"), expected=True, known="padding")
    write_run(tmp_path / "r.jsonl", [wrong])
    known(tmp_path, name, family, "diverged")
    done = report("r.jsonl", "--expectations", "known")
    assert done.exit_code == code, done.output
    assert ("1 of 1 case not as expected" in done.stdout) == bool(code)


def test_a_shard_alone_is_not_green(report, files, tmp_path):
    header = RunHeader(1, shard="1/2", run="a", started="2026-11-28T10:00:00Z")
    write_results(tmp_path / "1-of-2.jsonl", [result("calm", "ragged")], header)
    done = report("1-of-2.jsonl", "--badge", ".")
    assert done.exit_code == 1, done.output
    assert "not a whole run: shard 2/2 not there" in done.stdout
    assert json.loads((tmp_path / "badge.json").read_text())["color"] == "red"
    other = msgspec.structs.replace(header, shard="2/2")
    write_results(tmp_path / "2-of-2.jsonl", [result("calm", "repeat")], other)
    assert report("1-of-2.jsonl", "2-of-2.jsonl").exit_code == 0
    compared = CliRunner().invoke(group, ["diff", "2.jsonl", "1-of-2.jsonl", "--common"])
    assert compared.exit_code == 1, compared.output
    assert "1-of-2.jsonl is not a whole run: shard 2/2 not there" in compared.output


def test_several_files_are_one_run_for_every_kind_of_output(report, files, tmp_path):
    options = ("--junit", "j.xml", "--badge", ".", "--json", "joined.jsonl", "--to", "s.md")
    done = report("1.jsonl", "2.jsonl", "--annotations", *options)
    assert done.exit_code == 1, done.output
    (annotation,) = done.stdout.splitlines()
    assert annotation.startswith(
        "::error title=conformance toy/broken::broken: 1 case fails, at `ragged`: the token differs"
    )
    assert (tmp_path / "s.md").read_text().startswith("## Conformance: 1 of 6 cases not as")
    assert ET.parse(tmp_path / "j.xml").getroot().get("tests") == "6"
    assert json.loads((tmp_path / "badge.json").read_text())["color"] == "red"
    assert "1 unexpected, 5 of 6 conform" in (tmp_path / "badge.svg").read_text()
    assert (tmp_path / "joined.jsonl").read_text() == (tmp_path / "all.jsonl").read_text()


def test_it_goes_where_github_wants_it_and_keeps_what_is_there(report, files, tmp_path):
    step = tmp_path / "step.md"
    step.write_text("before\n")
    done = report("2.jsonl", GITHUB_STEP_SUMMARY=str(step))
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert step.read_text().startswith("before\n## Conformance: 3 cases, all as expected\n")
    assert report("2.jsonl").stdout.startswith("## Conformance: 3 cases")


def test_a_full_page_is_not_made_fuller(report, files, tmp_path):
    step = tmp_path / "step.md"
    step.write_text("x" * (1024 * 1024 - 300))
    report("all.jsonl", GITHUB_STEP_SUMMARY=str(step))
    assert step.stat().st_size <= 1024 * 1024
    assert step.read_text().endswith("more lines are left out.\n")


def test_what_is_worse_than_before_comes_first_and_ends_with_1(report, files, tmp_path):
    same = report("2.jsonl", "--against", "2.jsonl")
    assert same.exit_code == 0, same.output
    assert "### Conformance: no regression" in same.stdout
    lost = report("2.jsonl", "--against", "all.jsonl")
    assert lost.exit_code == 1, lost.output
    assert "#### lost coverage (3)" in lost.stdout
    worse = report("all.jsonl", "--against", "1.jsonl", "--against", "2.jsonl")
    assert worse.exit_code == 1, worse.output
    assert "no regression" in worse.stdout


def test_an_expectation_that_no_shard_met_is_reported_of_a_whole_run(report, files, tmp_path):
    known(tmp_path, "padding", "gone", "diverged")
    options = ("--expectations", "known", "--annotations")
    assert report("2.jsonl", *options).exit_code == 0
    done = report("2.jsonl", "--whole", *options)
    assert done.exit_code == 1, done.output
    assert "beside the cases::expectations: defect 'padding'" in done.stdout
    assert "0 of 3 cases not as expected, 2 other problems" in done.stdout


def test_a_run_that_left_schedules_out_is_no_whole_run(report, files, tmp_path):
    case = msgspec.structs.replace(result("calm", "ragged"), left_out=("long_and_short",))
    write_run(tmp_path / "default.jsonl", [case])
    assert report("default.jsonl").exit_code == 0
    done = report("default.jsonl", "--whole")
    assert done.exit_code == 2, done.output
    assert "--whole: toy/calm/ragged/float32/0 is not of the full tier" in done.stderr
    assert "`conformance run --tier full`" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_read_or_written_is_one_sentence(report, files, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    for arguments, words in (
        (("1.jsonl", "all.jsonl"), "all.jsonl: the case toy/"),
        (("empty.jsonl",), "no results in empty.jsonl"),
        (("1.jsonl", "--to", "no/s.md"), "--to: there is no folder"),
        (("1.jsonl", "--to", "."), "Invalid value for '--to'"),
        (("1.jsonl", "--junit", "no/j.xml"), "--junit: there is no folder"),
    ):
        done = report(*arguments)
        assert done.exit_code == 2, done.output
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert report("1.jsonl", "empty.jsonl").exit_code == 1


def edited(folder, change):
    """``all.jsonl`` with one thing changed by hand in its failing line, or without its header."""
    header, *lines = map(json.loads, (folder / "all.jsonl").read_text().splitlines())
    wrong = next(line for line in lines if line["verdict"] == "diverged")
    wrong["schedules"] = [{"name": "a", "verdict": "diverged"}]
    kept = lines if change else [line for line in lines if line is not wrong]
    wrong.update(change)
    written = [header, *lines] if change else kept
    (folder / "edited.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"expected": True}, 2, "'expected' is true, but diverged is the verdict"),
        ({"expected": True, "verdict": "exact"}, 2, "but that of a schedule is diverged"),
        (
            {"expected": True, "verdict": "exact", "schedules": []},
            2,
            "but that of a finding is diverged",
        ),
        (
            {"expected": True, "verdict": "policy", "evidence": [], "schedules": [], "known": "x"},
            1,
            "1 of 6 cases not as expected",
        ),
        ({"expected": True, "known": "nonsense-1"}, 1, "1 of 6 cases not as expected"),
        ({}, 1, "edited.jsonl has no header: it is not known whether it is whole"),
    ],
)
def test_a_file_that_was_edited_is_not_green(report, files, tmp_path, change, code, words):
    edited(tmp_path, change)
    done = report("edited.jsonl")
    assert (done.exit_code, words in done.output) == (code, True), done.output
    if code == 2:
        compared = CliRunner().invoke(group, ["diff", "all.jsonl", "edited.jsonl"])
        assert compared.exit_code == 2
        assert words in compared.stderr


def test_what_work_costs_is_written_between_the_marks_of_its_table(report, files, tmp_path):
    costs = (Cost("rows", 3.5, 1.0),)
    schedules = (ScheduleResult("end", Verdict.COST, costs=costs),)
    counted = msgspec.structs.replace(
        result("calm", "ragged"), verdict=Verdict.COST, known="x", schedules=schedules
    )
    write_run(tmp_path / "counted.jsonl", [counted])
    known(tmp_path, "x", "calm", "cost")
    page = tmp_path / "cost.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    options = ("--expectations", "known", "--costs", "cost.md")
    assert report("counted.jsonl", *options).exit_code == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "**3.5**" in text
    assert "old" not in text
    done = report("1.jsonl", "--costs", "none.md")
    assert done.exit_code == 2
    assert "--costs: none of the results counts what work costs" in done.stderr
    assert not (tmp_path / "none.md").exists()


# The status site takes files of any runs ---------------------------------------------------------


def test_a_status_site_of_several_releases(report, files, tmp_path):
    older = [
        msgspec.structs.replace(result("broken", name), versions={"toy": "1.2.2"})
        for name in SCENARIOS
    ]
    write_run(tmp_path / "older.jsonl", older)
    (tmp_path / "toy-1.2.2.caches.jsonl").write_text('{"what": "classes of caches"}\n')
    every = ("older.jsonl", "all.jsonl", "1.jsonl", "toy-1.2.2.caches.jsonl")
    done = report(*every, "--site", "status")
    assert done.exit_code == 0, done.output
    assert done.stdout == "4 pages: status/index.html\n"
    about = json.loads((tmp_path / "status" / "report.json").read_text())
    assert about["engines"] == {"toy": ["1.2.2", "1.2.3"]}


def test_in_a_status_site_an_entry_explains_what_was_judged_without_entries(
    report, files, tmp_path
):
    for family, colour in (("calm", "red"), ("broken", "green")):
        known(tmp_path, "padding", family, "diverged")
        done = report("all.jsonl", "--site", "status", "--expectations", "known")
        assert done.exit_code == 0, done.output
        found = json.loads((tmp_path / "status" / "badges" / "toy.json").read_text())
        assert found["color"] == colour
        (tmp_path / "known").rename(tmp_path / f"known-{family}")


def test_a_status_site_and_what_is_about_one_run_are_two_commands(report, files, tmp_path):
    done = report("all.jsonl", "--site", "status", "--junit", "j.xml")
    assert done.exit_code == 2
    assert "--junit about one" in done.output
    assert not (tmp_path / "status").exists()
