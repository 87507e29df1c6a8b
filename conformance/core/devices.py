"""NVIDIA GPUs: which of them a run uses, and which GPU each of its processes sees.

CUDA reads ``CUDA_VISIBLE_DEVICES`` when a process first computes, so nothing here imports mlx.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import itertools
import os
from collections.abc import Sequence

from conformance.core.errors import ConformanceError

OPTION = "--devices"
VISIBLE = "CUDA_VISIBLE_DEVICES"
ALL = "all"

_BUILDS = ("mlx-cuda-13", "mlx-cuda-12")
_NVML = "libnvidia-ml.so.1"


def in_words(words: Sequence[str]) -> str:
    """The option's value on a command line; the last one counts, as for other options."""
    found = [""]
    for before, word in itertools.pairwise(["", *words]):
        if before == OPTION:
            found.append(word)
        elif word.startswith(f"{OPTION}="):
            found.append(word.partition("=")[2])
    return found[-1]


def present() -> tuple[str, ...]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    given = os.environ.get(VISIBLE)
    if given is None:
        return tuple(map(str, range(_count())))
    return tuple(name for part in given.split(",") if (name := part.strip()))


def _count() -> int:
    """The GPUs that NVIDIA's driver knows; asking CUDA would make it ignore the variable later."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return 0
    number = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) != 0:
        return 0
    return number.value


def chosen(text: str) -> tuple[str, ...]:
    """The GPUs that an option names: a number of them, a list with commas, or all.

    Raises:
        ConformanceError: mlx has no CUDA here, there is no such GPU, or the text is neither.
    """
    if not any(map(_installed, _BUILDS)):
        raise ConformanceError(
            f"{OPTION}: no CUDA build of mlx is installed here; "
            "CONFORMANCE_EXTRAS=dev,cuda bash ci/setup.sh installs one"
        )
    there = present()
    if not there:
        raise ConformanceError(f"{OPTION}: there is no NVIDIA GPU that a process here may use")
    if text == ALL:
        return there
    if text.isdecimal() and text.isascii():
        return _first(int(text), there)
    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if missing := [name for name in wanted if name not in there]:
        raise ConformanceError(
            f"{OPTION}: there is no device {missing[0]!r} here, only {', '.join(there)}"
        )
    if not wanted:
        raise ConformanceError(f"{OPTION}: {text!r} names no device")
    return wanted


def _first(number: int, there: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= number <= len(there):
        raise ConformanceError(
            f"{OPTION}: {number} devices are wanted, and there are {len(there)} here "
            f"({', '.join(there)}); a list has a comma: '{number},'"
        )
    return there[:number]


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def use(text: str) -> tuple[str, ...]:
    """Restrict this process and its child processes to the GPUs that the option names.

    Raises:
        ConformanceError: as in ``chosen``.
    """
    names = chosen(text)
    see(names)
    return names


def see_first() -> None:
    """Restrict this process to the first GPU, if it would see several.

    mlx computes on the first one anyway; if it saw two, copies to the host failed (docs/gpu.md).
    """
    there = present() if any(map(_installed, _BUILDS)) else ()
    if len(there) > 1:
        see(there[:1])


def see(names: Sequence[str]) -> None:
    """Restrict this process and its child processes to these GPUs."""
    os.environ[VISIBLE] = ",".join(names)


class Turns:
    """Assigns each worker of a run a GPU: the one that the fewest workers have.

    Args:
        names: names of the GPUs; if empty, all workers see what this process sees.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._workers: dict[str, set[str]] = {name: set() for name in names}

    def take(self, worker: str) -> str:
        """The GPU of a worker that is about to start; empty if none is assigned."""
        if not self._workers:
            return ""
        name = min(self._workers, key=lambda one: len(self._workers[one]))
        self._workers[name].add(worker)
        return name

    def most(self, workers: int) -> int:
        """The largest number of workers, out of this many, that share a GPU."""
        return -(-workers // max(len(self._workers), 1))

    def give_back(self, worker: str) -> None:
        """A worker ended; its replacement gets its GPU."""
        for workers in self._workers.values():
            workers.discard(worker)
