"""Cuts the cases of a run into parts for one worker each, and runs a part."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.app.cli.pytest_call import call_pytest
from conformance.app.run_settings import Settings
from conformance.core.grouping import grouped
from conformance.core.verdict import CaseId
from conformance.run.family_seconds import FamilySeconds

PART_SECONDS = 60.0
"""Approximate seconds of a part; a lost worker's parts are run again."""


@dataclass(frozen=True)
class Part:
    """Cases of one family, in order; ``seconds`` as recorded."""

    group: str
    cases: tuple[CaseId, ...]
    seconds: float


@dataclass(frozen=True)
class Work:
    """A part, and how to run it."""

    part: Part
    settings: Settings


@dataclass(frozen=True)
class Played:
    """Lines of a result file, and the last output, for cases without a result."""

    lines: tuple[str, ...] = ()
    said: str = ""


def play(work: Work) -> Played:
    """Run the cases of a part in one more process, as ``conformance run`` does with one job."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        cases, results = Path(name, "cases.txt"), Path(name, "results.jsonl")
        cases.write_text("\n".join(map(str, work.part.cases)), encoding="utf-8")
        settings = dataclasses.replace(work.settings, cases=cases, json=results, keep=False)
        _, text = call_pytest(settings, workers=1, exitfirst=False)
        said = text.strip().splitlines()
        # If the run did not finish, its results are in the partial file.
        for path in (results, results.with_name(f"{results.name}.partial")):
            if path.is_file():
                lines = path.read_text(encoding="utf-8").splitlines()[1:]
                return Played(tuple(lines), said[-1] if said else "")
        return Played((), said[-1] if said else "")


def parts_of(
    cases: Iterable[CaseId],
    group_of: Callable[[CaseId], str],
    seconds: FamilySeconds,
    most: float = PART_SECONDS,
) -> list[Part]:
    """A family's cases in parts of about equal length, each of at most about ``most`` seconds.

    The longest parts come first.
    """
    found = []
    for group, own in grouped(cases, group_of).items():
        count = min(len(own), max(1, math.ceil(seconds.of(group) / most)))
        ends = [round(len(own) * index / count) for index in range(count + 1)]
        for begin, end in itertools.pairwise(ends):
            share = seconds.of(group) * (end - begin) / len(own)
            found.append(Part(group, tuple(own[begin:end]), share))
    return sorted(found, key=lambda part: -part.seconds)
