"""Interrupts small runs at random moments by one or two signals, and looks at what is left.

    python ci/interruptions.py --runs 200
    python ci/interruptions.py --runs 50 --server mlx_lm_server

A result file lies if it was replaced although it has fewer results than its header planned. An
orphan is a process of the run that outlives it. The engine is the tests' toy engine on two workers,
or with --server a library's server. The exit code is 1 if a file lies, if an orphan or a file of
the run is left, if a process writes a traceback or ends with a code other than 0, 1 or 2, or if no
server was running at any signal.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from conformance.core.errors import ConformanceError
from conformance.report.jsonl import read_run

ROOT = Path(__file__).parents[1]
TOYS = str(ROOT / "tests" / "toy")  # no other plugin is visible there
MARK = "CONFORMANCE_INTERRUPTED_RUN"
OLD, EARLY, WHOLE = "old\n", "early", "whole"
FRESH = ("--fresh", "--json")
_GRACE_SECONDS = 2.0  # after a run, its processes must have ended within this time
_END_SECONDS = 300.0  # an interrupted run must end within this time, even on a busy machine
_START_SECONDS = 120.0  # a server's process must exist within this time
_SERVERS_FOLDER = "conformance-server-"
SERVING = "its server ran"
_REFUSED = 2  # also the exit code of an interrupted run


@dataclass(frozen=True)
class Kind:
    """What to interrupt: options of ``conformance run``, the number of cases, and when.

    Attributes:
        longest: the last moment, in seconds; some runs end by themselves before it.
        server: the run starts a server. In four of five runs, moments are counted from the
            server's start, however slow the machine is.
    """

    options: tuple[str, ...]
    cases: int
    longest: float
    server: bool = False


TOY = Kind(("--engine", "toy", "--jobs", "2"), 12, 7.0)


def served(engine: str) -> Kind:
    """One case of a library's server."""
    family = {"mlx_lm_server": "llama", "mlx_vlm_server": "qwen2_vl"}[engine]
    options = ("--engine", engine, "--family", family, "--scenario", "served_together")
    return Kind((*options, "--jobs", "1"), 1, 10.0, server=True)


def interrupted(kind: Kind, folder: Path, rng: random.Random) -> list[str]:
    """Problems of what a randomly interrupted run leaves behind; or how the run ended."""
    mark = uuid.uuid4().hex
    place, temporary = folder / "results", folder / "temporary"
    place.mkdir()
    temporary.mkdir()
    target = place / "r.jsonl"
    target.write_text(OLD, encoding="utf-8")
    variables = {"TOY_FAMILIES": "calm broken tied quiet", "TOY_SECONDS": "0.1"}
    paths = (str(ROOT),) if kind.server else (TOYS, str(ROOT))
    variables |= {"PYTHONPATH": os.pathsep.join(paths)}
    variables |= {MARK: mark, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "conformance", "run", *kind.options, *FRESH, str(target)],
        cwd=place,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    moments = [rng.uniform(0.3, kind.longest)]
    moments += [moments[0] + rng.uniform(0, 0.3)] if rng.random() < 0.5 else []
    if kind.server and rng.random() < 0.8:
        until = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < until and not _serves(mark):
            time.sleep(0.1)
    begin, serving = time.monotonic(), False
    for at, moment in enumerate(moments):
        _wait(process, begin + moment)
        if at == 0 and process.poll() == _REFUSED:
            return [
                f"ended by itself with code 2 before the first signal: {process.communicate()[1]}"
            ]
        serving = serving or (kind.server and _serves(mark))
        _send(process, rng.choice((signal.SIGINT, signal.SIGTERM)), group=rng.random() < 0.5)
    try:
        _, said = process.communicate(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"still there after {_END_SECONDS:.0f} s", *_left(mark, place, temporary)]
    found = [*_wrong(process.returncode, said, target, kind.cases), *_left(mark, place, temporary)]
    return [*found, SERVING] if serving else found


def _serves(mark: str) -> bool:
    """Whether a process of the run is a server: a forked one has no command line of its own."""
    found = (one for one in psutil.process_iter() if _is_of(one, mark))
    return any(_SERVERS_FOLDER in _folder(one) for one in found)


def _folder(process: psutil.Process) -> str:
    try:
        return str(process.cwd())
    except psutil.Error:
        return ""


def _wait(process: subprocess.Popen[str], until: float) -> None:
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)


def _send(process: subprocess.Popen[str], number: int, *, group: bool) -> None:
    """Send the signal to all, like Ctrl-C in a terminal, or only to the run, like ``kill``."""
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, number)


def _wrong(code: int, said: str, target: Path, cases: int) -> list[str]:
    if code < 0 and target.read_text(encoding="utf-8") == OLD:
        return [EARLY]  # Python itself had not started
    found = []
    if code not in (0, 1, 2):
        found.append(f"exit code {code}")
    if "Traceback" in said:
        found.append(f"a traceback: {said}")
    if target.read_text(encoding="utf-8") == OLD:
        return [*found] if code == 2 else [*found, f"no file, and exit code {code}"]
    try:
        run = read_run(target)
    except ConformanceError:
        return [*found, "a file that lies"]
    if run.missing or len(run.results) != cases:
        found.append("a file that lies")
    return [*found, WHOLE]


def _left(mark: str, place: Path, temporary: Path) -> list[str]:
    until = time.monotonic() + _GRACE_SECONDS
    while (orphans := [p for p in psutil.process_iter() if _is_of(p, mark)]) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)
    for orphan in orphans:
        orphan.kill()
    known = {"r.jsonl", "r.jsonl.partial"}
    files = [path.name for path in place.iterdir() if path.name not in known]
    found = ["an orphan" for _ in orphans] + [f"left: {name}" for name in files]
    others = ("pytest-of-", "mlx")  # pytest's folders, and mlx's kernel cache
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(others)]
    return found + [f"left: {name}" for name in left]


def _is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def main() -> int:
    """Print the problems, with their counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", choices=("mlx_lm_server", "mlx_vlm_server"))
    given = parser.parse_args()
    kind = served(given.server) if given.server else TOY
    counts: Counter[str] = Counter()
    for number in range(given.runs):
        with tempfile.TemporaryDirectory(prefix="interruption-") as folder:
            found = interrupted(kind, Path(folder), random.Random(f"{given.seed} {number}"))
        counts.update(found)
        if wrong := [one for one in found if one not in (WHOLE, EARLY, SERVING)]:
            print(f"run {number}: {', '.join(wrong)}", flush=True)
    whole, early = counts.pop(WHOLE, 0), counts.pop(EARLY, 0)
    serving = counts.pop(SERVING, 0)
    lies, orphans = counts["a file that lies"], counts["an orphan"]
    print(
        f"{given.runs} runs interrupted: result files that lie {lies}, orphans {orphans}, other "
        f"faults {counts.total() - lies - orphans}; {whole} were whole before the signal, {early} "
        "had not begun" + (f"; in {serving} the server ran at the signal" if kind.server else "")
    )
    return int(counts.total() > 0 or (kind.server and not serving))


if __name__ == "__main__":
    sys.exit(main())
