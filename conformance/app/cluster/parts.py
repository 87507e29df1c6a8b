"""How the cases of a run are cut into what one worker plays at a time, and how it plays them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.app.cli.pytest_call import call_pytest
from conformance.app.pytest_plugin.options import Settings
from conformance.core.verdict import CaseId
from conformance.run.family_seconds import FamilySeconds

PART_SECONDS = 60.0
"""About how long a part may take; a lost worker's parts are played again."""


@dataclass(frozen=True)
class Part:
    """Cases of one family, in their order; ``seconds`` as recorded."""

    group: str
    cases: tuple[CaseId, ...]
    seconds: float


@dataclass(frozen=True)
class Work:
    """A part, and how it is to be played."""

    part: Part
    settings: Settings


@dataclass(frozen=True)
class Played:
    """Lines of a result file, and what was said last, for the cases that have none."""

    lines: tuple[str, ...] = ()
    said: str = ""


def play(work: Work) -> Played:
    """Play the cases of a part in a process more, as ``conformance run`` does with one job."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        cases, results = Path(name, "cases.txt"), Path(name, "results.jsonl")
        cases.write_text("\n".join(map(str, work.part.cases)), encoding="utf-8")
        settings = dataclasses.replace(work.settings, cases=cases, json=results, keep=False)
        _, text = call_pytest(settings, workers=1, exitfirst=False)
        said = text.strip().splitlines()
        # Of a run that did not come to its end the partial file has what there is.
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
    """A family's cases in parts of about equal length, each of about ``most`` seconds or less.

    Those that take longest come first.
    """
    groups: dict[str, list[CaseId]] = {}
    for case in cases:
        groups.setdefault(group_of(case), []).append(case)
    found = []
    for group, own in groups.items():
        count = min(len(own), max(1, math.ceil(seconds.of(group) / most)))
        ends = [round(len(own) * index / count) for index in range(count + 1)]
        for begin, end in itertools.pairwise(ends):
            share = seconds.of(group) * (end - begin) / len(own)
            found.append(Part(group, tuple(own[begin:end]), share))
    return sorted(found, key=lambda part: -part.seconds)
