"""The outcome of each fault in each family: the lines of a result file of ``conformance power``."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.core.errors import ResultError
from conformance.report.jsonl import read_records
from conformance.report.markdown import between, code, one_line, table


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


def read_trials(paths: Iterable[Path]) -> tuple[Trial, ...]:
    """The trials of some files. For the same fault in the same family, the last one counts.

    Raises:
        ResultError: a file cannot be read, or a line is not a trial; the message names it.
    """
    what = "not a result of `conformance audit power`"
    trials = (trial for path in paths for trial in read_records(path, Trial, what, ResultError))
    found = {(t.fault, t.engine, t.family, t.dtype, t.seed): t for t in trials}
    return tuple(found.values())


# The separation of faults and rounding: a family's smallest signal over its largest noise --------

LEAST = {"float32": 100.0, "bfloat16": 5.0, "float16": 5.0}
"""The separation that a family should have in each dtype."""


@dataclass(frozen=True)
class Separation:
    """The separation of one family in one dtype.

    A difference is measured in units of the noise envelope of its own step (``numerics``).

    Attributes:
        signal: the smallest of the signals of the family's killed faults. A fault's signal is the
            largest difference of a run with it that the right run lacks, in units of noise; faults
            that no number detects have none and are left out. A run ends once it detects the fault
            clearly, so the signal is a lower bound; the smallest signals are exact.
        noise: the largest difference of all right runs of the family, in units of noise; at least
            1, since rounding may reach the envelope.
        fault: the fault with the smallest signal.
    """

    engine: str
    family: str
    dtype: str
    signal: float
    noise: float
    fault: str

    @property
    def value(self) -> float:
        """Signal over noise."""
        return self.signal / self.noise

    @property
    def enough(self) -> bool:
        """Whether it is large enough for the dtype."""
        return self.value >= LEAST[self.dtype]


def separations(trials: Sequence[Trial]) -> tuple[Separation, ...]:
    """The separation of each family and dtype, the smallest first.

    A family without a killed fault that a number detects has no separation.
    """
    groups: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.engine, trial.family, trial.dtype].append(trial)
    found = []
    for key, group in groups.items():
        signals = [
            (trial.signal, trial.fault)
            for trial in group
            if trial.outcome is Outcome.KILLED and trial.signal is not None
        ]
        if signals:
            noise = max([1.0, *(trial.noise for trial in group if trial.noise is not None)])
            signal, fault = min(signals)
            found.append(Separation(*key, signal, noise, fault))
    return tuple(sorted(found, key=lambda item: item.value))


# Which scenario and checks kill each fault, as a Markdown table ----------------------------------

BEGIN, END = "<!-- table of faults: begin -->", "<!-- table of faults: end -->"
"""Marks around the table in a Markdown file."""


def with_faults(text: str, trials: Sequence[Trial]) -> str:
    """A Markdown text with the table between its marks; without marks, the table alone."""
    return between(text, BEGIN, END, "\n".join(faults_markdown(trials)))


def faults_markdown(trials: Sequence[Trial]) -> list[str]:
    """A row for each fault, a column for each engine and family; cells name what killed it."""
    columns = list(dict.fromkeys((t.engine, t.family, t.dtype) for t in trials))
    found = {(t.fault, t.engine, t.family, t.dtype): t for t in trials}
    faults = sorted({t.fault for t in trials}, key=_place)
    rows = [
        [code(name), *(_cell(found.get((name, *column))) for column in columns)] for name in faults
    ]
    head = ["", *(code("/".join(column)) for column in columns)]
    killed = sum(trial.outcome is Outcome.KILLED for trial in trials)
    tried = sum(trial.outcome is not Outcome.NOT_APPLICABLE for trial in trials)
    return [*table(head, rows), "", f"{killed} of {tried} killed."]


def _place(name: str) -> tuple[str, int, str]:
    """Sort key: a fault's letter and number."""
    key = name.partition(".")[0]
    letters = key.rstrip("0123456789")
    return letters, int(key[len(letters) :] or 0), name


def _cell(trial: Trial | None) -> str:
    if trial is None:
        return ""
    if trial.outcome is not Outcome.KILLED:
        return f"{trial.outcome}: {one_line(trial.why)}" if trial.why else str(trial.outcome)
    first = trial.kills[0]
    return f"{code(first.scenario)}: {', '.join(first.checks)}"
