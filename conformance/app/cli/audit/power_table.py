"""The kill matrix in words and tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from conformance.checks import CHECKS
from conformance.report.separation import LEAST, Separation, separations
from conformance.report.trials import Kill, Outcome, Trial

# How many kills and families are shown, the smallest signal over noise first.
_FAINTEST = 10


def print_matrix(console: Console, trials: Sequence[Trial]) -> None:
    """All results of the trials, for each dtype separately."""
    for dtype in sorted({trial.dtype for trial in trials}, reverse=True):
        some = [trial for trial in trials if trial.dtype == dtype]
        apart = separations(some)
        console.print(by_class(some, dtype))
        if apart:
            console.print(faintest(some))
            console.print(closest(apart))
        for line in (*too_close(apart), *candidates(some), *survivors(some), verdict(some)):
            console.print(line, soft_wrap=True)


def by_class(trials: Sequence[Trial], title: str) -> Table:
    """For each class of faults, how many pairs of fault and family were killed and survived."""
    table = _table(title, "class")
    for name in ("faults", "killed", "survived", "hidden", "not applicable"):
        table.add_column(name, justify="right")
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.fault_class].append(trial)
    for name, group in sorted(groups.items()):
        table.add_row(name, *_counts(group))
    table.add_row("all", *_counts(trials), style="bold")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name)
    return table


def _counts(trials: Sequence[Trial]) -> list[str]:
    outcomes = Counter(trial.outcome for trial in trials)
    return [str(len({t.fault for t in trials})), *(str(outcomes[outcome]) for outcome in Outcome)]


def faintest(trials: Sequence[Trial]) -> Table:
    """The kills with the smallest signal over noise."""
    kills = [(kill.ratio, t, kill) for t in trials for kill in t.kills if kill.ratio is not None]
    table = _table("faintest kills", "signal / noise", "fault", "family", "scenario", "checks")
    for ratio, trial, kill in sorted(kills, key=lambda item: item[0])[:_FAINTEST]:
        where = f"{trial.engine}/{trial.family}"
        table.add_row(f"{ratio:.3g}", trial.fault, where, kill.scenario, ", ".join(kill.checks))
    return table


def closest(apart: Sequence[Separation]) -> Table:
    """The families with the smallest separation."""
    title = f"separation: the closest of {len(apart)} families"
    table = _table(title, "separation", "family", "smallest signal", "largest noise", "of fault")
    for item in apart[:_FAINTEST]:
        figures = (f"{item.signal:.3g}", f"{item.noise:.3g}")
        table.add_row(f"{item.value:.3g}", f"{item.engine}/{item.family}", *figures, item.fault)
    return table


def too_close(apart: Sequence[Separation]) -> Iterator[str]:
    """Warn about families whose separation is too small for their dtype."""
    names = [f"{a.engine}/{a.family} ({a.value:.3g}, {a.fault})" for a in apart if not a.enough]
    if names:
        yield f"separation below {LEAST[apart[0].dtype]:g}: {', '.join(names)}"


def candidates(trials: Sequence[Trial]) -> Iterator[str]:
    """For each scenario and check, the faults that only it catches.

    Scenarios and checks without any are named. Uses only trials for which every scenario was run.
    """
    whole = [trial for trial in trials if trial.complete]
    if not whole:
        return
    scenarios = {name for trial in whole for name in trial.tried}
    checks = {check.__module__.rpartition(".")[2] for check in CHECKS}
    for what, names, known in (("scenario", _scenarios, scenarios), ("check", _checks, checks)):
        alone: dict[str, set[str]] = defaultdict(set)
        seen: set[str] = set()
        for trial in whole:
            by = {name for kill in trial.kills for name in names(kill)}
            seen |= by
            if len(by) == 1:
                alone[by.pop()].add(trial.fault)
        for name in sorted(alone):
            yield f"only {what} {name} catches: {', '.join(sorted(alone[name]))}"
        for how, some in (("alone", seen - set(alone)), ("at all", known - seen)):
            if some:
                yield f"may be removed, each {what} that catches nothing {how}: " + ", ".join(
                    sorted(some)
                )


def _scenarios(kill: Kill) -> tuple[str, ...]:
    return (kill.scenario,)


def _checks(kill: Kill) -> tuple[str, ...]:
    return kill.checks


def survivors(trials: Sequence[Trial]) -> Iterator[str]:
    """A line for each pair of fault and family that no check detected."""
    for t in trials:
        if t.outcome is Outcome.SURVIVED:
            why = t.why or f"tried {', '.join(t.tried)}"
            yield f"survived: {t.fault} in {t.engine}/{t.family} {t.dtype} ({why})"


def verdict(trials: Sequence[Trial]) -> str:
    """A summary sentence; names the faults that applied nowhere."""
    applicable = {t.fault for t in trials if t.outcome is not Outcome.NOT_APPLICABLE}
    idle = sorted({t.fault for t in trials} - applicable)
    hidden = sum(t.outcome is Outcome.HIDDEN for t in trials)
    aside = f"; {hidden} are hidden by what is wrong without them" if hidden else ""
    aside += f"; applicable in none of these families: {', '.join(idle)}" if idle else ""
    killed = sum(t.outcome is Outcome.KILLED for t in trials)
    pairs = killed + sum(t.outcome is Outcome.SURVIVED for t in trials)
    word, share = ("OK" if killed == pairs else "FAILED"), killed / max(pairs, 1)
    return f"{word}: {killed} of {pairs} pairs of fault and family were killed ({share:.1%}){aside}"
