"""Which scenario and checks kill each fault, as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.report.markdown import between, code, one_line, table
from conformance.report.trials import Outcome, Trial

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
