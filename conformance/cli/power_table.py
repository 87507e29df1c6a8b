"""The kill matrix in words and tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.table import Table

from conformance.power import Kill, Outcome, Trial

# Kills that are shown, those with the smallest signal over noise first.
_FAINTEST = 10


def by_class(trials: Sequence[Trial]) -> Table:
    """For each class of faults how many pairs of fault and family were killed, how many not."""
    table = Table(box=None, pad_edge=False)
    table.add_column("class")
    for name in ("faults", "killed", "survived", "not applicable"):
        table.add_column(name, justify="right")
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.fault_class].append(trial)
    for name, group in sorted(groups.items()):
        table.add_row(name, *_counts(group))
    table.add_row("all", *_counts(trials), style="bold")
    return table


def _counts(trials: Sequence[Trial]) -> list[str]:
    outcomes = Counter(trial.outcome for trial in trials)
    order = (Outcome.KILLED, Outcome.SURVIVED, Outcome.NOT_APPLICABLE)
    return [str(len({t.fault for t in trials})), *(str(outcomes[outcome]) for outcome in order)]


def faintest(trials: Sequence[Trial]) -> Table:
    """The kills with the smallest signal over noise."""
    kills = [(kill.ratio, t, kill) for t in trials for kill in t.kills if kill.ratio is not None]
    table = Table(title="faintest kills", title_justify="left", box=None, pad_edge=False)
    for name in ("signal / noise", "fault", "family", "scenario", "checks"):
        table.add_column(name)
    for ratio, trial, kill in sorted(kills, key=lambda item: item[0])[:_FAINTEST]:
        where = f"{trial.engine}/{trial.family}"
        table.add_row(f"{ratio:.3g}", trial.fault, where, kill.scenario, ", ".join(kill.checks))
    return table


def candidates(trials: Sequence[Trial], *, complete: bool) -> Iterator[str]:
    """For each scenario and check what only it catches; those that catch nothing alone by name.

    Args:
        complete: every scenario was run with every fault; else nothing can be said of that.
    """
    if not complete:
        return
    for what, names in (("scenario", _scenarios), ("check", _checks)):
        alone: dict[str, set[str]] = defaultdict(set)
        seen: set[str] = set()
        for trial in trials:
            by = {name for kill in trial.kills for name in names(kill)}
            seen |= by
            if len(by) == 1:
                alone[by.pop()].add(trial.fault)
        for name in sorted(alone):
            yield f"only {what} {name} catches: {', '.join(sorted(alone[name]))}"
        idle = sorted(seen - set(alone))
        if idle:
            yield f"each {what} that catches nothing alone may be removed: {', '.join(idle)}"


def _scenarios(kill: Kill) -> tuple[str, ...]:
    return (kill.scenario,)


def _checks(kill: Kill) -> tuple[str, ...]:
    return kill.checks


def verdict(trials: Sequence[Trial]) -> str:
    """One sentence; names the survivors, and faults that were applicable nowhere."""
    survivors = [t for t in trials if t.outcome is Outcome.SURVIVED]
    applicable = {t.fault for t in trials if t.outcome is not Outcome.NOT_APPLICABLE}
    idle = sorted({t.fault for t in trials} - applicable)
    aside = f"; applicable in none of these families: {', '.join(idle)}" if idle else ""
    pairs = sum(t.outcome is not Outcome.NOT_APPLICABLE for t in trials)
    if not survivors:
        return f"OK: {pairs} of {pairs} pairs of fault and family were killed{aside}"
    names = ", ".join(f"{t.fault} in {t.engine}/{t.family}" for t in survivors)
    return f"FAILED: {len(survivors)} of {pairs} pairs of fault and family survived: {names}{aside}"
