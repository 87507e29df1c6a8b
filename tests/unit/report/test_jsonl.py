"""Result files."""

import pytest

from conformance.errors import ResultError
from conformance.report.jsonl import ResultFile, read_results
from conformance.verdict import encode


def test_until_it_is_finished_the_old_file_stays(result, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("old\n")
    file = ResultFile(path, encode)
    file.add(result())
    assert path.read_text() == "old\n"
    assert read_results(file.partial) == (result(),), "what was found so far can be read"
    file.finish([result("e/b/s/d/0"), result("e/a/s/d/0")])
    assert [r.family for r in read_results(path)] == ["b", "a"], "in the order that was given"
    assert [p.name for p in tmp_path.iterdir()] == ["r.jsonl"]


def test_an_interrupted_run_leaves_the_partial_file(result, tmp_path):
    file = ResultFile(tmp_path / "r.jsonl", encode)
    file.add(result())
    file.close()
    assert [p.name for p in tmp_path.iterdir()] == ["r.jsonl.partial"]


def test_where_nothing_can_be_written_it_is_told_at_once(tmp_path):
    with pytest.raises(ResultError, match=r"gone/r\.jsonl: cannot write results there"):
        ResultFile(tmp_path / "gone" / "r.jsonl", encode)


def test_a_malformed_line_is_named(result, tmp_path):
    path = tmp_path / "r.jsonl"
    ResultFile(path, encode).finish([result()])
    path.write_text(path.read_text() + "\n{}\n")
    with pytest.raises(ResultError, match=r"r\.jsonl, line 3: .*case"):
        read_results(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ResultError, match=r"gone\.jsonl: cannot read results"):
        read_results(tmp_path / "gone.jsonl")
