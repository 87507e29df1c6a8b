"""Free memory is dirtied, and given back; how much there is, is known."""

import os
import threading
from collections import Counter
from pathlib import Path

import mlx.core as mx
import pytest

from conformance.backend import memory
from conformance.backend.memory import (
    alive,
    available_bytes,
    churn,
    exact_buffers,
    left,
    only_new_objects,
)


def test_no_memory_is_held_afterwards():
    mx.synchronize()
    before = mx.get_active_memory()
    churn()
    mx.synchronize()
    assert mx.get_active_memory() <= before


def test_buffers_are_filled_with_nan_and_with_huge_numbers(monkeypatch):
    values = []
    full = mx.full

    def recorded(shape, value, dtype):
        values.append((shape[0], value))
        return full(shape, value, dtype)

    monkeypatch.setattr(mx, "full", recorded)
    churn(rounds=2)
    sizes = {size for size, _ in values}
    assert {64, 65536} <= sizes
    for size in sizes:
        filled = [value for other, value in values if other == size]
        assert any(value != value for value in filled)  # NaN
        assert any(value == 1e9 for value in filled)


def test_live_arrays_are_left_unchanged():
    x = mx.arange(256).astype(mx.float32)
    mx.eval(x)
    churn(rounds=3)
    assert x.tolist() == list(range(256))


def test_a_buffer_is_as_large_as_its_array():
    def taken():
        freed = mx.zeros(5000, mx.uint8)
        mx.eval(freed)
        del freed
        mx.synchronize()
        before = mx.get_active_memory()
        kept = mx.zeros(4000, mx.uint8)
        mx.eval(kept)
        return mx.get_active_memory() - before

    mx.clear_cache()
    assert taken() == 5000
    limit = mx.set_cache_limit(1 << 30)
    with exact_buffers():
        assert taken() == 4000
    assert mx.set_cache_limit(limit) == 1 << 30


def test_the_host_says_what_is_available(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:  64 kB\n")
    assert memory._free_of_host(meminfo) == 64 * 1024
    meminfo.write_text("MemTotal:  100 kB\n")
    assert memory._free_of_host(meminfo) is None
    assert memory._free_of_host(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("info", "bytes_"),
    [
        ({"free_memory": 7, "total_memory": 9}, 7),
        ({"max_recommended_working_set_size": 5, "memory_size": 8}, 5),
        ({"total_memory": 9}, 9),
    ],
)
def test_a_gpu_says_it_itself(info, bytes_, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.DeviceType.gpu))
    monkeypatch.setattr(mx, "device_info", lambda device: info)
    assert available_bytes() == bytes_


def test_arrays_that_live_are_counted_since_the_block_began():
    old = mx.ones(3)
    mx.eval(old)
    with only_new_objects():
        before = alive(0)
        kept = [mx.ones(8), mx.ones(8)]
        mx.eval(kept)
        after = alive(0)
        assert after.arrays - before.arrays == 2
        # Beside their 64 bytes those of the numbers that they were filled with.
        assert 64 <= after.nbytes - before.nbytes < 128
        assert alive(64).nbytes == after.nbytes - 64
        kept.clear()
        assert alive(0).arrays == before.arrays


def kinds_left(make, *, recorded=False):
    """What there is more of when something was made."""
    with only_new_objects():
        before = left(recorded=recorded)
        kept = make()
        after = left(recorded=recorded)
        del kept
    return {kind for kind, count in after.items() if count > before.get(kind, 0)}


def test_what_is_left_is_counted_by_kind():
    def thread():
        end = threading.Event()
        threading.Thread(target=end.wait, daemon=True).start()
        return end

    assert "open files" in kinds_left(lambda: Path(os.devnull).open())  # noqa: SIM115
    assert kinds_left(lambda: mx.full((7,), 2.0)) >= {"objects of mlx.core.array"}
    arrays = kinds_left(lambda: mx.eval(made := mx.arange(4096)) or made)
    assert {"objects of mlx.core.array", "bytes of arrays"} <= arrays
    assert "objects of builtins.list" in kinds_left(lambda: [[1]])
    ends = []
    assert "threads" in kinds_left(lambda: ends.append(thread()))
    ends[0].set()


def test_beside_a_record_builtin_objects_are_not_counted():
    assert kinds_left(lambda: [{}], recorded=True) == set()
    assert kinds_left(lambda: Counter(a=1), recorded=True) == {"objects of collections.Counter"}
