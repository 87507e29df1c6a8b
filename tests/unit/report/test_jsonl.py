"""Result files."""

import resource

import msgspec
import pytest

from conformance.core.errors import ResultError
from conformance.core.verdict import encode
from conformance.report.jsonl import ResultFile, read_results


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


def test_where_nothing_can_be_written_it_is_reported_at_once(tmp_path):
    with pytest.raises(ResultError, match=r"gone/r\.jsonl: cannot write results there"):
        ResultFile(tmp_path / "gone" / "r.jsonl", encode)


def test_a_line_that_was_being_written_is_no_result(result, tmp_path):
    """The process was killed, or the machine stopped, in the middle of it."""
    file = ResultFile(tmp_path / "r.jsonl", encode)
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
    file = ResultFile(tmp_path / "r.jsonl", encode)
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
    first = ResultFile(path, encode)
    first.add(result())
    with pytest.raises(ResultError, match="another run is writing its results there"):
        ResultFile(path, encode)
    assert read_results(first.partial) == (result(),), "it was not touched"
    first.close()
    second = ResultFile(path, encode)
    assert read_results(second.partial) == ()
    second.finish([])


def test_a_separator_of_unicode_does_not_end_a_line(result, tmp_path):
    """JSON holds it as it is, and a hostile name may have one."""
    named = msgspec.structs.replace(result(), device="a\u2028b\x85c")
    ResultFile(tmp_path / "r.jsonl", encode).finish([named])
    assert read_results(tmp_path / "r.jsonl") == (named,)


def test_a_malformed_line_is_named(result, tmp_path):
    path = tmp_path / "r.jsonl"
    ResultFile(path, encode).finish([result()])
    path.write_text(path.read_text() + "\n{}\n")
    with pytest.raises(ResultError, match=r"r\.jsonl, line 3: .*case"):
        read_results(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ResultError, match=r"gone\.jsonl: can't be read"):
        read_results(tmp_path / "gone.jsonl")
