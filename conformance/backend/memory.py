"""How much memory there is, what is alive in it, and how to fill the free memory with garbage.

MLX checks no bounds, so a read past the end returns the garbage.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import psutil

from conformance.core.trace import Alive

# Element counts of typical small buffers; a freed buffer is reused for the next of its size.
_SIZES = (64, 256, 1024, 4096, 12288, 65536)


def churn(rounds: int = 2) -> None:
    """Fill buffers of many sizes with NaN and huge numbers, then free them."""
    for index in range(rounds):
        value = float("nan") if index % 2 == 0 else 1e9
        held = [mx.full((size,), value, mx.float32) for size in _SIZES for _ in range(4)]
        mx.eval(held)
        del held


@contextlib.contextmanager
def only_new_objects() -> Iterator[None]:
    """Inside the block, ``alive`` sees what was made in it, without searching the rest."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def exact_buffers() -> Iterator[None]:
    """Inside the block, each array gets a buffer of its own size.

    A buffer that MLX reuses may be larger than requested, and counts as a whole: caches that are
    copied in each step would seem to grow.
    """
    before = mx.set_cache_limit(0)
    mx.clear_cache()
    try:
        yield
    finally:
        mx.set_cache_limit(before)


def alive(cache_bytes: int) -> Alive:
    """Objects alive when all work is done and everything without references is freed.

    Args:
        cache_bytes: bytes in live caches, which are left out.
    """
    mx.synchronize()
    gc.collect()
    arrays = sum(type(found) is mx.array for found in gc.get_objects())
    return Alive(arrays, int(mx.get_active_memory()) - cache_bytes)


# Types of what a run records, and of its adapter.
_OURS = frozenset({"builtins", "conformance", "numpy"})


def left(*, recorded: bool) -> dict[str, int]:
    """Counts of what is alive when all work is done, by kind; within ``only_new_objects``.

    Args:
        recorded: a run's record is alive, too, so that only objects of foreign types are counted.
    """
    mx.synchronize()
    gc.collect()
    process = psutil.Process()
    found = Counter(type(each) for each in gc.get_objects())
    counts = {
        f"objects of {kind.__module__}.{kind.__qualname__}": count
        for kind, count in found.items()
        if not (recorded and kind.__module__.partition(".")[0] in _OURS)
    }
    del found
    return counts | {
        "bytes of arrays": int(mx.get_active_memory()),
        "threads": process.num_threads(),
        "open files": process.num_fds(),
    }


def available_bytes() -> int | None:
    """Bytes available to models on the default device now; ``None`` if unknown."""
    device = mx.default_device()
    info = mx.device_info(device) if hasattr(mx, "device_info") else {}
    if device.type == mx.DeviceType.gpu:
        # Metal reports a recommendation, CUDA the free memory; both may be part of the host's
        # memory.
        for name in ("free_memory", "max_recommended_working_set_size", "total_memory"):
            if info.get(name):
                return int(info[name])
    return _free_of_host(Path("/proc/meminfo")) or int(info.get("memory_size", 0)) or None


def own_memory() -> int:
    """Bytes of the default device's own memory; 0 if it uses the machine's (CPU, Metal)."""
    device = mx.default_device()
    if device.type != mx.DeviceType.gpu or mx.metal.is_available():
        return 0
    info = mx.device_info(device) if hasattr(mx, "device_info") else {}
    return int(info.get("total_memory") or info.get("free_memory") or 0)


def bytes_of_arrays() -> int:
    """Bytes that mlx's arrays take now, without the freed buffers that it keeps."""
    return int(mx.get_active_memory())


def keep_cache_below(limit: int) -> None:
    """Let mlx keep freed buffers only while they and the arrays take less than ``limit``."""
    mx.set_memory_limit(limit)


def _free_of_host(meminfo: Path) -> int | None:
    """``MemAvailable`` of Linux, in bytes."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
