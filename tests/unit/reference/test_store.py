"""The oracle cache: results are read as written, whole or not at all, of one model."""

import dataclasses
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from conformance.core.numerics import Envelope
from conformance.core.trace import Stream
from conformance.reference.sealed import why_unwritable, write_cached
from conformance.reference.store import folder_of, oracle_cache, sweep

MADE_BY = {"mlx": "1.0", "device": "cpu", "dtype": "float32"}
KEY = (b'{"prompt":[1,2]}', 1, None, None, None)
STREAM = Stream((4, 5), np.array([[-1.5, -0.25], [-0.5, -1.0]], np.float32))
NOISE = Envelope(np.array([1e-6, 2e-6]), np.array([3e-6, 4e-6]), 1e-7)


@pytest.fixture
def cache(tmp_path):
    return lambda digest="ab" * 32, **more: oracle_cache(tmp_path, digest, {**MADE_BY, **more})


def test_what_was_cached_is_there_in_the_next_run(cache):
    cache().streams[KEY] = STREAM
    cache().envelopes[KEY, 8] = NOISE
    again, noise = cache().streams[KEY], cache().envelopes[KEY, 8]
    assert again.tokens == STREAM.tokens
    assert again.logprobs.dtype == np.float32
    assert np.array_equal(again.logprobs, STREAM.logprobs)
    assert np.array_equal(noise.top, NOISE.top)
    assert np.array_equal(noise.full, NOISE.full)
    assert (noise.floor, noise.measured, noise.few) == (NOISE.floor, True, False)
    cache().envelopes[KEY, 2] = dataclasses.replace(NOISE, few=True)
    assert cache().envelopes[KEY, 2].few


def test_another_request_is_not_there(cache):
    cache().streams[KEY] = STREAM
    assert cache().streams.get((*KEY[:1], 2, None, None, None)) is None
    assert cache().envelopes.get((KEY, 8)) is None


@pytest.mark.parametrize(
    "other", [{"digest": "cd" * 32}, {"dtype": "bfloat16"}, {"mlx": "1.1"}, {"device": "gpu"}]
)
def test_another_model_or_machine_is_not_used(cache, other):
    cache().streams[KEY] = STREAM
    assert cache(**other).streams.get(KEY) is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign", "pipe"])
def test_a_damaged_file_is_reported_and_made_again(cache, tmp_path, damage):
    cache().streams[KEY] = STREAM
    (file,) = tmp_path.rglob("*.npz")
    whole = bytearray(file.read_bytes())
    if damage == "flipped":
        at = whole.index(STREAM.logprobs.tobytes())
        whole[at] ^= 1
    changed = {"cut": whole[:-30], "flipped": whole, "emptied": b"", "foreign": b"PK nonsense"}
    if damage == "pipe":
        file.unlink()
        os.mkfifo(file)
    else:
        file.write_bytes(changed[damage])
    opened = cache()
    with pytest.warns(UserWarning, match="the cached oracle is damaged .* it is made again"):
        assert opened.streams.get(KEY) is None
    assert not file.exists()
    opened.streams[KEY] = STREAM
    assert cache().streams[KEY].tokens == STREAM.tokens


def test_a_file_under_another_s_name_is_not_believed(cache, tmp_path):
    cache().streams[KEY] = STREAM
    (file,) = tmp_path.rglob("*.npz")
    opened = cache()
    other = (b"other", 1, None, None, None)
    opened.streams[other] = STREAM
    (second,) = set(tmp_path.rglob("*.npz")) - {file}
    second.write_bytes(file.read_bytes())
    with pytest.warns(UserWarning, match="of another request"):
        assert cache().streams.get(other) is None


def test_a_sweep_takes_damaged_files_out_and_leaves_the_others(cache, tmp_path):
    opened = cache()
    opened.streams[KEY] = STREAM
    opened.envelopes[KEY, False] = NOISE
    (file,) = tmp_path.rglob("streams/*.npz")
    file.write_bytes(file.read_bytes()[:40])
    (removed,) = sweep(folder_of(tmp_path, "ab" * 32))
    assert removed.startswith(f"{file}: the cached oracle is damaged")
    assert not file.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache().streams.get(KEY) is None
        assert cache().envelopes.get((KEY, False)) is not None


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path / "file" / "cache"
    streams = oracle_cache(cache, "ab" * 32, MADE_BY).streams
    with pytest.warns(UserWarning, match=r"nothing can be cached there \(Not a directory\)"):
        streams[KEY] = STREAM
    assert streams[KEY] is STREAM
    assert "Not a directory" in why_unwritable(cache)
    assert why_unwritable(tmp_path / "new" / "cache") is None


def test_a_pickle_in_the_cache_is_damage(cache, tmp_path):
    """NumPy would run it if it were allowed to."""
    cache().streams[KEY] = STREAM
    (file,) = tmp_path.rglob("*.npz")
    np.savez(file, key=np.array([Hostile(tmp_path / "mark")], dtype=object))
    with pytest.warns(UserWarning, match="is damaged"):
        assert cache().streams.get(KEY) is None
    assert not (tmp_path / "mark").exists()


class Hostile:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_what_sigkill_left_in_a_cache_is_removed_by_the_next_run(tmp_path):
    code = (
        "import os, pathlib, signal, sys; from conformance.reference.sealed import write_cached\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_cached(pathlib.Path(sys.argv[1]), b'whole')\n"
    )
    folder = tmp_path / "oracle" / "streams"

    def killed():
        done = subprocess.run([sys.executable, "-c", code, str(folder / "a")], check=False)
        assert done.returncode == -signal.SIGKILL
        (left,) = folder.glob(".a.*.partial")
        return left

    left = killed()
    assert sweep(tmp_path / "oracle") == []
    assert not left.exists()
    left = killed()
    write_cached(folder / "another", b"x")
    assert list(folder.iterdir()) == [folder / "another"]
