"""A plugin of models that harm their process: each does what its family is called.

Only in the scenario ``wild``, which is played between two others: those must complete.
"""

import dataclasses
import os
import signal
import sys
import threading
import time
from pathlib import Path

import mlx.core as mx
import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from miniatures.library import ToyLibrary, family
from miniatures.model import ToyModel
from miniatures.right import ContinuousBatching

from conformance.backend import device
from conformance.core.library import Coverage
from conformance.run.hookspecs import hookimpl
from conformance.scenarios.batch import RAGGED

if "TOY_GPU" in os.environ:
    device.check_gpu = lambda: None

FAMILIES = tuple(
    os.environ.get("TOY_FAMILIES", "aborts vanishes loops freezes grows leaves").split()
)
SCENARIOS = ("before", "wild", "after")
SECONDS = 30
NOW = []
LOST = []


def aborts():
    os.abort()


def vanishes():
    os.kill(os.getpid(), signal.SIGKILL)


def loops():
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(0.01)  # the tests' machine has other work


def freezes():
    """As native code does: no handler of a signal is run."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(SECONDS)


def grows():
    kept = []
    while len(kept) * 16 < 8000:
        kept.append(b"x" * 2**24)
        time.sleep(0.01)


def leaves():
    threading.Thread(target=time.sleep, args=[SECONDS], name="forgotten").start()


def loses():
    """A device's error after which nothing can be computed in this process."""
    LOST.append(True)


def poisons():
    """As ``loses``, but what it spoils is seen by the computations that come later."""
    mx.eval = fails


def refuses():
    """A kernel that cannot be had."""
    raise RuntimeError("There is no kernel named mlx::core::cu::gather<float>.")


def misses():
    """As ``refuses``, but only the first time: another process was still writing it."""
    if once("misses"):
        refuses()


def fills():
    """Memory of the device that others have taken, and give back."""
    if once("fills"):
        raise RuntimeError("cudaMallocAsync(&data, size) failed: out of memory")


def compiles(name):
    """A kernel, as mlx writes it."""
    folder = Path(os.environ["MLX_PTX_CACHE_DIR"])
    for suffix in (".ptx", ".txt"):
        (folder / name).with_suffix(suffix).write_text(f"{folder}\n")


def once(name):
    """Whether no process has asked before."""
    mark = Path(os.environ["TOY_LOG"]).with_name(name)
    there = mark.exists()
    mark.touch()
    return not there


def fails(*_):
    raise RuntimeError("cudaStreamSynchronize(stream) failed: an illegal memory access")


class Wild(ToyModel):
    name = ""

    def __call__(self, *arguments, **more):
        if NOW == ["wild"]:
            NOW.clear()
            globals().get(self.name, int)()
        if LOST:
            raise RuntimeError("cudaGraphLaunch failed: an illegal memory access was encountered")
        return super().__call__(*arguments, **more)


class WildLibrary(ToyLibrary):
    def coverage(self):
        return Coverage(("toy",), {"toy": "no family is called so"})

    def load(self, family, *, dtype, seed):
        model = Wild()
        model.name = family.name
        return model


class Engine(ContinuousBatching):
    name = "toy"


@hookimpl
def conformance_libraries():
    return [WildLibrary()]


@hookimpl
def conformance_families():
    return [msgspec.structs.replace(family(), name=name) for name in FAMILIES]


@hookimpl
def conformance_engines():
    return [Engine]


@hookimpl
def conformance_scenarios():
    return [scenario(rung, name) for rung, name in enumerate(SCENARIOS)]


@hookimpl
def conformance_faults():
    return []


def scenario(rung, name):
    def make(brief):
        """One schedule, as a whole ladder would cost the tests seconds; the oracle comes first."""
        (schedule,) = RAGGED.make(brief)[:1]
        NOW[:] = [name]
        if "TOY_LOG" in os.environ:
            with Path(os.environ["TOY_LOG"]).open("a") as log:
                device = os.environ.get("CUDA_VISIBLE_DEVICES", "-")
                log.write(f"{brief.family}/{name} {os.getpid()} {device}\n")
        if "TOY_KERNELS" in os.environ:
            compiles(f"{brief.family}-{os.getpid()}")
        return [schedule]

    return dataclasses.replace(RAGGED, name=name, rung=rung, make=make)
