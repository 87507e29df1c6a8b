"""One family's stored oracle: bit for bit, whole, and only where it is this model's."""

import dataclasses

import numpy as np
import pytest

from conformance.core.numerics import Envelope
from conformance.core.trace import Stream
from conformance.reference.oracle_file import OracleFile
from conformance.reference.sealed import SealedFolder

KEY = ((b'{"prompt":[1,2]}', 1, None, None, None), 7)
OTHER = ((b'{"prompt":[3]}', 1, None, None, None), 7)
NOISE_KEY = (KEY[0], 0, 2, 7)
STREAM = Stream((4, 5), np.array([[-1.5, -0.1], [np.nan, -0.0]], np.float32))
SECOND = Stream((6,), np.array([[-2.5, 1e-45]], np.float32))
NOISE = Envelope(np.array([1e-6, 2e-6], np.float32), np.array([3e-6, 4e-6]), 0.1, few=True)


@pytest.fixture
def reports():
    return []


@pytest.fixture
def opened(tmp_path, reports):
    return lambda key="k": OracleFile(
        tmp_path / "f" / "a.oracle", key, reports.append, SealedFolder(tmp_path / "f")
    )


@pytest.fixture
def written(opened):
    """The file, with two streams and a noise in it."""
    file = opened()
    file.cache.streams[KEY] = STREAM
    file.cache.streams[OTHER] = SECOND
    file.cache.envelopes[NOISE_KEY] = NOISE
    assert file.save()
    return file.path


def confirmed(file):
    """The first stream was made once more, and was the same."""
    file.cache.streams[KEY] = STREAM
    return file


def test_what_was_stored_has_the_same_bits_in_the_next_run(opened, written):
    cache = confirmed(opened()).cache
    for key, value in ((KEY, STREAM), (OTHER, SECOND)):
        again = cache.streams[key]
        assert again.tokens == value.tokens
        assert again.logprobs.dtype == np.float32
        assert again.logprobs.shape == value.logprobs.shape
        assert again.logprobs.tobytes() == value.logprobs.tobytes()
    noise = cache.envelopes[NOISE_KEY]
    for name in ("top", "full"):
        got, want = getattr(noise, name), getattr(NOISE, name)
        assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())
    assert (noise.floor, noise.measured, noise.few) == (0.1, True, True)
    assert dataclasses.astuple(noise)[2:] == dataclasses.astuple(NOISE)[2:]


def test_no_stream_is_given_out_before_one_was_made_again(opened, written):
    file = opened()
    assert file.cache.streams.get(KEY) is None
    assert file.cache.streams.get(OTHER) is None
    confirmed(file)
    assert file.cache.streams.get(OTHER) is not None


def test_a_new_stream_confirms_nothing(opened, written):
    file = opened()
    file.cache.streams["new", 7] = SECOND
    assert file.cache.streams.get(OTHER) is None


@pytest.mark.parametrize(
    "other",
    [
        Stream((4, 6), STREAM.logprobs),
        Stream((4,), STREAM.logprobs[:1]),
        Stream((4, 5), np.nextafter(STREAM.logprobs, np.float32(1))),
    ],
    ids=["another token", "fewer tokens", "one unit in the last place"],
)
def test_a_stream_that_comes_out_otherwise_rejects_the_whole_file(opened, written, reports, other):
    file = opened()
    file.cache.streams[KEY] = other
    assert reports == [f"{written}: the stored oracle is not this model's; it is made again"]
    assert file.cache.streams.get(OTHER) is None
    assert file.cache.envelopes.get(NOISE_KEY) is None
    assert file.cache.streams[KEY].logprobs.tobytes() == other.logprobs.tobytes()
    assert file.save()
    assert list(opened().cache.streams) == [f"stream {KEY!r}"]


def test_another_key_is_an_empty_file_and_no_damage(opened, written, reports):
    file = opened("another")
    assert len(file.cache.streams) == len(file.cache.envelopes) == 0
    assert reports == []


def test_nothing_is_written_without_anything_new(opened, written):
    before = written.stat().st_mtime_ns
    assert not confirmed(opened()).save()
    assert written.stat().st_mtime_ns == before


def test_later_runs_add_to_the_file(opened, written):
    file = confirmed(opened())
    file.cache.streams["new", 7] = SECOND
    assert file.save()
    assert len(opened().cache.streams) == 3
    assert len(opened().cache.envelopes) == 1


def test_processes_at_the_same_time_add_to_each_others_results(opened, written):
    one, other = confirmed(opened()), confirmed(opened())
    one.cache.streams["one", 7], other.cache.streams["other", 7] = SECOND, SECOND
    assert one.save()
    assert other.save()
    assert {*opened().cache.streams} == {*one.cache.streams, *other.cache.streams}
    assert len(opened().cache.streams) == 4


def test_what_another_process_wrote_is_not_taken_back_by_one_that_rejects_it(opened, written):
    file, other = opened(), confirmed(opened())
    other.cache.streams["other", 7] = SECOND
    assert other.save()
    file.reject()
    file.cache.streams["new", 7] = SECOND
    assert file.save()
    assert len(opened().cache.streams) == 1


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign", "other arrays"])
def test_a_damaged_file_is_reported_and_made_again(opened, written, reports, damage, tmp_path):
    whole = bytearray(written.read_bytes())
    if damage == "flipped":
        whole[whole.index(STREAM.logprobs.tobytes())] ^= 1
    np.savez(tmp_path / "b.npz", a=np.zeros(1))
    other = (tmp_path / "b.npz").read_bytes()
    changed = {"cut": whole[:-30], "flipped": whole, "emptied": b"", "foreign": b"PK nonsense"}
    written.write_bytes({**changed, "other arrays": other}[damage])
    file = opened()
    assert len(file.cache.streams) == 0
    (report,) = reports
    assert report.startswith(f"{written}: the cached oracle is damaged (")
    assert report.endswith("it is made again")
    assert not written.exists()
    assert len(opened().cache.streams) == 0
    assert len(reports) == 1
    file.cache.streams[KEY] = STREAM
    assert file.save()
    assert len(opened().cache.streams) == 1
    assert len(reports) == 1


def test_a_folder_that_cannot_be_written_raises_and_reads_as_empty(tmp_path, reports):
    (tmp_path / "file").write_text("in the way")
    file = OracleFile(
        tmp_path / "file" / "a.oracle", "k", reports.append, SealedFolder(tmp_path / "file")
    )
    file.cache.streams[KEY] = STREAM
    with pytest.raises(FileExistsError):
        file.save()
    assert reports == []


def test_results_can_be_removed(opened, written):
    cache = confirmed(opened()).cache
    del cache.streams[OTHER]
    assert cache.streams.get(OTHER) is None
