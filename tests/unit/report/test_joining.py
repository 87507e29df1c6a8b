"""Shards, and other files, as one run."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.core.errors import ResultError
from conformance.core.run_header import RunHeader
from conformance.core.verdict import encode
from conformance.report.joining import read_joined
from conformance.report.jsonl import read_run, write_results


@pytest.fixture
def shard(tmp_path):
    """Writes the file of one shard of two, with one case."""

    def write(number, *, planned=1, **changes):
        header = RunHeader(planned, shard=f"{number}/2", run="a", started="2026-11-28T10:00:00Z")
        results = [make_result(f"mlx_lm/f{number}/ragged/float32/0")]
        write_results(
            tmp_path / f"{number}.jsonl", results, msgspec.structs.replace(header, **changes)
        )
        return tmp_path / f"{number}.jsonl"

    return write


def test_all_shards_are_a_whole_run(shard):
    joined = read_joined([shard(1), shard(2, started="2026-11-28T21:00:00Z")])
    assert (len(joined.results), joined.problems, joined.missing) == (2, (), 0)
    assert (joined.header.shard, joined.header.run) == ("", "a")
    assert joined.header.started == "2026-11-28T10:00:00Z"


def test_a_shard_alone_is_none_also_when_it_was_joined(shard, tmp_path):
    joined = read_joined([shard(2)])
    assert joined.problems == ("not a whole run: shard 1/2 not there",)
    write_results(tmp_path / "joined.jsonl", joined.results, joined.header)
    assert read_joined([tmp_path / "joined.jsonl"]).problems == joined.problems


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "b"}, "other settings or versions than those of"),
        ({"started": "2026-11-27T10:00:00Z"}, "it began 24 h before"),
    ],
)
def test_a_shard_of_another_run_does_not_count(shard, changes, words):
    newer, older = shard(1, started="2026-11-28T10:00:01Z"), shard(2, **changes)
    joined = read_joined([older, newer])
    assert [result.family for result in joined.results] == ["f1"]
    assert joined.problems == (
        f"{older} does not count: {words} {newer}",
        "not a whole run: shard 2/2 not there",
    )


def test_a_shard_that_is_not_whole_lacks_cases(shard):
    assert read_joined([shard(1, planned=3), shard(2)]).missing == 2


def test_of_a_file_without_a_header_it_is_not_known_whether_it_is_whole(shard, tmp_path):
    bare, joint = tmp_path / "bare", tmp_path / "joint"
    write_results(bare, [make_result("mlx_lm/bare/ragged/float32/0")])
    joined = read_joined([bare, shard(1, planned=2), shard(2)])
    assert (len(joined.results), joined.header, joined.missing) == (3, None, 1)
    says = "has no header: it is not known whether it is whole; play its cases again"
    assert joined.problems == (f"{bare} {says}",)
    write_results(joint, joined.results, joined.header)
    assert read_joined([joint]).problems == (f"{joint} {says}",)


def test_more_results_than_were_planned_are_refused(shard):
    with pytest.raises(ResultError, match="that 0 cases were planned, and 1 have a result"):
        read_run(shard(1, planned=0))


@pytest.mark.parametrize("field", ["shard", "started"])
def test_a_header_that_says_nonsense_is_refused(shard, field):
    with pytest.raises(ResultError, match=f"field '{field}' is 'x'"):
        read_joined([shard(1), shard(2, **{field: "x"})])


def test_the_header_says_of_which_part_a_file_is(shard):
    assert '"shard":"1/2"' in encode(read_run(shard(1)).header)
