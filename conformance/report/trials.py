"""The outcome of each fault in each family: the lines of a result file of ``conformance power``."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path

import msgspec

from conformance.core.errors import ResultError
from conformance.core.user_files import MOST_BYTES, read_text, typed_json


class Outcome(enum.StrEnum):
    """The outcome of a fault in a family.

    ``hidden``: the fault took effect only where the family is wrong without it, and no check found
    a difference. The known defect that hides it is listed in ``expectations/``.
    """

    KILLED = "killed"
    SURVIVED = "survived"
    HIDDEN = "hidden"
    NOT_APPLICABLE = "not applicable"


class Kill(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scenario that detected a fault.

    Attributes:
        scenario: its name.
        verdict: verdict of the case with the fault.
        checks: checks with a finding that the run without the fault lacks.
        ratio: the largest difference over its noise in such a finding. ``None`` if it was not
            detected by numbers (lost tokens, wrong draws, bookkeeping, costs: all within noise), or
            one is not finite.
        schedules: the scenario's schedules that would have detected it alone, as far as they were
            run: without ``Trial.complete`` the first one ends the run.
    """

    scenario: str
    verdict: str
    checks: tuple[str, ...]
    ratio: float | None = None
    schedules: tuple[str, ...] = ()


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault in a family: one line of the file.

    Attributes:
        hits: how often the defect took effect.
        tried: the scenarios that were run with it; with ``complete``, all that the engine can
            express, else only until one detected it.
        why: why it is hidden or not applicable, or how it survived.
        noise: the largest difference over its noise of the runs without the fault; ``None`` if none
            of them was right.
    """

    fault: str
    fault_class: str
    engine: str
    family: str
    dtype: str
    seed: int
    outcome: Outcome
    kills: tuple[Kill, ...] = ()
    hits: int = 0
    tried: tuple[str, ...] = ()
    why: str = ""
    seconds: float = 0.0
    noise: float | None = None
    complete: bool = False
    schema: int = 1

    @property
    def signal(self) -> float | None:
        """The largest ratio of its kills; ``None`` if no kill has one."""
        ratios = [kill.ratio for kill in self.kills if kill.ratio is not None]
        return max(ratios, default=None)


def encode(trial: Trial) -> str:
    """The trial as one line of JSON, without the newline."""
    return msgspec.json.encode(trial).decode()


def read_trials(paths: Iterable[Path]) -> tuple[Trial, ...]:
    """The trials of some files. For the same fault in the same family, the last one counts.

    Raises:
        ResultError: a file cannot be read, or a line is not a trial; the message names it.
    """
    found: dict[tuple[str, str, str, str, int], Trial] = {}
    for path in paths:
        lines = read_text(path, ResultError, most=MOST_BYTES).split("\n")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                trial = _decode(line, f"{path}, line {number}")
                key = (trial.fault, trial.engine, trial.family, trial.dtype, trial.seed)
                found[key] = trial
    return tuple(found.values())


def _decode(line: str, where: str) -> Trial:
    what = "not a result of `conformance audit power`"
    return typed_json(line, Trial, f"{where}: {what}", ResultError)
