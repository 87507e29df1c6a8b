"""Result files."""

import json
import os
import re
import resource
from pathlib import Path

import jsonschema
import msgspec
import pytest
from results_by_hand import make_finding, make_result
from schemas import published_schema

from conformance.core.errors import ResultError
from conformance.core.run_header import RunHeader
from conformance.core.verdict import ScheduleResult, Verdict, WitnessResult, encode
from conformance.report.jsonl import (
    ResultFile,
    contradiction,
    derived_schema,
    read_results,
    read_run,
    write_results,
)


def test_until_it_is_finished_the_old_file_stays(result, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("old\n")
    file = ResultFile(path)
    file.add(result())
    assert path.read_text() == "old\n"
    assert read_results(file.partial) == (result(),), "what was found so far can be read"
    file.finish([result("e/b/s/d/0"), result("e/a/s/d/0")])
    assert [r.family for r in read_results(path)] == ["b", "a"], "in the order that was given"
    assert [p.name for p in tmp_path.iterdir()] == ["r.jsonl"]


def test_where_nothing_can_be_written_it_is_reported_at_once(tmp_path):
    with pytest.raises(ResultError, match=r"gone/r\.jsonl: cannot write results there"):
        ResultFile(tmp_path / "gone" / "r.jsonl")


def test_a_line_that_was_being_written_is_no_result(result, tmp_path):
    """The process was killed, or the machine stopped, in the middle of it."""
    file = ResultFile(tmp_path / "r.jsonl")
    file.add(result("e/a/s/d/0"))
    file.add(result("e/b/s/d/0"))
    file.close()
    whole = file.partial.read_bytes()
    file.partial.write_bytes(whole[:-20])
    assert [r.family for r in read_results(file.partial)] == ["a"]
    (tmp_path / "r.jsonl").write_bytes(whole[:-20])
    with pytest.raises(ResultError, match="line 2"):
        read_results(tmp_path / "r.jsonl")


def test_what_does_not_fit_on_the_disk_leaves_whole_lines(result, tmp_path):
    file = ResultFile(tmp_path / "r.jsonl")
    file.add(result("e/a/s/d/0"))
    before = file.partial.read_bytes()
    room = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, room[1]))
    try:
        with pytest.raises(
            ResultError, match=r"r\.jsonl: cannot write results there: File too large"
        ):
            file.add(result("e/b/s/d/0"))
        with pytest.raises(ResultError, match="File too large"):
            file.finish([result("e/a/s/d/0")] * 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
    file.close()
    assert file.partial.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.jsonl.partial"]


def test_one_run_at_a_time_writes_a_file(result, tmp_path):
    path = tmp_path / "r.jsonl"
    first = ResultFile(path)
    first.add(result())
    with pytest.raises(ResultError, match="another run is writing its results there"):
        ResultFile(path)
    assert read_results(first.partial) == (result(),), "it was not touched"
    first.close()
    second = ResultFile(path)
    assert read_results(second.partial) == ()
    second.finish([])


def test_a_separator_of_unicode_does_not_end_a_line(result, tmp_path):
    """JSON holds it as it is, and a hostile name may have one."""
    named = msgspec.structs.replace(result(), device="a\u2028b\x85c")
    ResultFile(tmp_path / "r.jsonl").finish([named])
    assert read_results(tmp_path / "r.jsonl") == (named,)


def test_a_file_that_lacks_planned_cases_is_known_by_its_header(result, tmp_path):
    file = ResultFile(tmp_path / "r.jsonl")
    file.begin(RunHeader(3))
    file.add(result())
    assert read_run(file.partial).missing == 2
    file.begin(RunHeader(1))
    file.finish([result()])
    found = read_run(tmp_path / "r.jsonl")
    assert (found.missing, found.header, found.results) == (0, RunHeader(1), (result(),))


def test_two_files_in_one_are_named_as_such(result, tmp_path):
    write_results(tmp_path / "one.jsonl", [result()], RunHeader(1))
    one = (tmp_path / "one.jsonl").read_text()
    (tmp_path / "both.jsonl").write_text(one * 2)
    with pytest.raises(ResultError, match=r"line 3: another result file begins here; name each"):
        read_run(tmp_path / "both.jsonl")


def test_what_is_no_regular_file_gets_all_at_the_end():
    file = ResultFile(Path(os.devnull))
    file.begin(RunHeader(0))
    file.finish([])
    assert not Path(f"{os.devnull}.partial").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "line 1: field 'schema' is 2"),
        ({"family": "other"}, "line 1: field 'case' is 'e/f/s/d/0', but the other fields name"),
        ({"case": "e/f\n/s/d/0", "family": "f\n"}, "line 1: field 'case' holds characters"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(result, tmp_path, change, words):
    wrong = msgspec.structs.replace(result("e/f/s/d/0"), **change)
    (tmp_path / "r.jsonl").write_text(encode(wrong) + "\n")
    with pytest.raises(ResultError, match=re.escape(words)):
        read_run(tmp_path / "r.jsonl")


def test_a_case_that_is_there_twice_is_refused_by_all_who_read(result, tmp_path):
    write_results(tmp_path / "r.jsonl", [result(), result()])
    with pytest.raises(ResultError, match=r"line 2: the case .* is there twice"):
        read_results(tmp_path / "r.jsonl")


@pytest.mark.parametrize("line", ['{"record":"run"}', '{"record":"run","planned":-1}'])
def test_a_header_that_is_none_is_refused(tmp_path, line):
    (tmp_path / "r.jsonl").write_text(line + "\n")
    with pytest.raises(ResultError, match="planned"):
        read_run(tmp_path / "r.jsonl")


# Lines of a result file that deny themselves -----------------------------------------------------

WRONG = ScheduleResult("a", Verdict.DIVERGED)
RULE = make_finding(Verdict.DIVERGED, check="expectations")
GL = "ImportError: libGL.so.1: cannot open shared object file: No such file"
LACKS = make_finding(Verdict.UNSUPPORTED, got=GL)


@pytest.mark.parametrize(
    "result",
    [
        make_result(),
        make_result(verdict=Verdict.DIVERGED),
        make_result(verdict=Verdict.DIVERGED, expected=True, known="x", schedules=(WRONG,)),
        make_result(evidence=(make_finding(Verdict.DIVERGED, mended="x"),)),
        make_result(expected=False, known="x", evidence=(RULE,)),
        make_result(verdict=Verdict.UNSUPPORTED, expected=True, evidence=(LACKS,)),
        make_result(verdict=Verdict.CRASH, schedules=(WRONG,)),
    ],
)
def test_what_is_written_by_a_run_is_none(result):
    assert contradiction(result) == ""


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            make_result(evidence=(make_finding(),)),
            "the verdict is exact, but that of a finding is diverged",
        ),
        (
            make_result(schedules=(WRONG,)),
            "the verdict is exact, but that of a schedule is diverged",
        ),
        (
            make_result(verdict=Verdict.DRIFT, schedules=(WRONG,)),
            "the verdict is drift, but that of a schedule is diverged",
        ),
        (
            make_result(verdict=Verdict.DIVERGED, expected=True),
            "'expected' is true, but diverged is the verdict and no defect is known",
        ),
        (
            make_result(verdict=Verdict.UNSUPPORTED, expected=True),
            "'expected' is true, but unsupported is the verdict and no defect is known",
        ),
        (
            make_result(schedules=(ScheduleResult("a", Verdict.EXACT),), left_out=("a",)),
            "the schedule 'a' was played and left out",
        ),
        (
            make_result(witnesses=(WitnessResult("padding", ("b",)),)),
            "'b' shows 'padding', but was not played",
        ),
    ],
)
def test_each_is_named(result, words):
    assert contradiction(result) == words


# The published schema is the one derived from the code -------------------------------------------

VALIDATOR = jsonschema.Draft202012Validator(published_schema())


def test_the_published_schema_follows_from_the_code():
    message = "python -c 'from conformance.report.jsonl import *; print(schema_text(), end=\"\")'"
    assert published_schema() == derived_schema(), f"write it anew: {message}"


def test_results_of_every_verdict_are_valid(result, finding):
    for verdict in Verdict:
        line = encode(result(verdict=verdict, evidence=(finding(verdict),)))
        VALIDATOR.validate(json.loads(line))
