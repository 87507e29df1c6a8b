"""Interrupts small runs at random moments by one or two signals, and looks at what is left.

    python ci/interruptions.py --runs 200

A result file lies if it was replaced and has fewer results than its header says were planned. An
orphan is a process of the run that is there when the run has ended. The engine is the toy of the
tests, on two workers. Exit code 1 if a file lies, an orphan or a file of the run is left, a process
writes a traceback, or ends by another code than 0, 1 or 2.
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
from pathlib import Path

import psutil

from conformance.core.errors import ConformanceError
from conformance.report.jsonl import read_run

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join((str(ROOT / "tests" / "toy"), str(ROOT)))
MARK = "CONFORMANCE_INTERRUPTED_RUN"
OLD, EARLY, WHOLE = "old\n", "early", "whole"
COMMAND = ["-m", "conformance", "run", "--engine", "toy", "--jobs", "2", "--fresh", "--json"]
FAMILIES = "calm broken tied quiet"
CASES = 12
LONGEST_SECONDS = 7.0  # some runs end by themselves before it
_GRACE_SECONDS = 2.0  # until the processes of a run that has ended must be gone


def interrupted(folder: Path, rng: random.Random) -> list[str]:
    """What is wrong with what a run leaves that is interrupted at random; or how it ended."""
    mark = uuid.uuid4().hex
    place, temporary = folder / "results", folder / "temporary"
    place.mkdir()
    temporary.mkdir()
    target = place / "r.jsonl"
    target.write_text(OLD, encoding="utf-8")
    variables = {"TOY_FAMILIES": FAMILIES, "TOY_SECONDS": "0.1", "PYTHONPATH": PATHS}
    variables |= {MARK: mark, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.Popen(
        [sys.executable, *COMMAND, str(target)],
        cwd=place,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    moments = sorted(rng.uniform(0.3, LONGEST_SECONDS) for _ in range(1))
    moments += [moments[0] + rng.uniform(0, 0.3)] if rng.random() < 0.5 else []
    begin = time.monotonic()
    for moment in moments:
        _wait(process, begin + moment)
        _send(process, rng.choice((signal.SIGINT, signal.SIGTERM)), group=rng.random() < 0.5)
    _, said = process.communicate(timeout=60)
    return [*_wrong(process.returncode, said, target), *_left(mark, place, temporary)]


def _wait(process: subprocess.Popen[str], until: float) -> None:
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)


def _send(process: subprocess.Popen[str], number: int, *, group: bool) -> None:
    """To all as by Ctrl-C in a terminal, or to the run alone, as by ``kill``."""
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, number)


def _wrong(code: int, said: str, target: Path) -> list[str]:
    if code < 0 and target.read_text(encoding="utf-8") == OLD:
        return [EARLY]  # Python itself had not begun
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
    if run.missing or len(run.results) != CASES:
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
    left = [path.name for path in temporary.iterdir() if not path.name.startswith("pytest-of-")]
    return found + [f"left: {name}" for name in left]


def _is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def main() -> int:
    """Print what was found, and how often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(given.runs):
        with tempfile.TemporaryDirectory(prefix="interruption-") as folder:
            found = interrupted(Path(folder), random.Random(f"{given.seed} {number}"))
        counts.update(found)
        if wrong := [one for one in found if one not in (WHOLE, EARLY)]:
            print(f"run {number}: {', '.join(wrong)}", flush=True)
    whole, early = counts.pop(WHOLE, 0), counts.pop(EARLY, 0)
    lies, orphans = counts["a file that lies"], counts["an orphan"]
    print(
        f"{given.runs} runs interrupted: result files that lie {lies}, orphans {orphans}, other "
        f"faults {counts.total() - lies - orphans}; {whole} were whole before the signal, {early} "
        "had not begun"
    )
    return int(counts.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
