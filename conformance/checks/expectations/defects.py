"""Puts the entries about one upstream defect together, for readers.

Entries of ``expectations/`` are about cases: one defect has several where other engines, families
or schedules show it otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.checks.expectations.bound_places import at
from conformance.checks.expectations.entries import Defect, matches
from conformance.checks.expectations.loading import OWN
from conformance.checks.expectations.lock import Locked
from conformance.core.errors import ExpectationError
from conformance.core.known_defect import IssueScript, KnownDefect, Severity
from conformance.core.mends import Mend
from conformance.core.upstream_functions import Place, places
from conformance.core.user_files import read_text
from conformance.scenarios.features import needed

Cases = Mapping[str, Mapping[str, tuple[str, ...]]]
"""For each engine its families, each with the scenarios that apply to it."""

_ALIKE = re.compile(r"As [\w-]+[:,.]? ")  # the entry refers to another one for its reason


@dataclass(frozen=True)
class Ground:
    """What defects are counted against.

    Attributes:
        cases: what can be run, by engine.
        generators: the engines with whose code a library's own server decodes, servers included.
        summaries: what each scenario does, by its name.
        mends: all mends.
        lock: the entries' own schedules.
    """

    cases: Cases
    generators: frozenset[str] = frozenset()
    summaries: Mapping[str, str] = field(default_factory=dict)
    mends: tuple[Mend, ...] = ()
    lock: tuple[Locked, ...] = ()


def known_defects(entries: Iterable[Defect], ground: Ground) -> tuple[KnownDefect, ...]:
    """The defects that the entries are about, those of most reach first."""
    found = (_defect(group, ground) for group in groups(tuple(entries)))
    return tuple(sorted(found, key=lambda one: (-one.points, -one.cases, one.id)))


def groups(entries: tuple[Defect, ...]) -> Iterator[tuple[Defect, ...]]:
    """Entries of one place upstream, or whose script is that of an entry of a shared place.

    The first of each group explains the defect.
    """
    by_id = {entry.id: entry for entry in entries}
    head: dict[str, str] = {}
    there: dict[frozenset[Place], str] = {}
    for entry in entries:
        here = frozenset(places(entry.where))
        other = by_id.get(entry.script)
        shared = other is not None and bool(here & set(places(other.where)))
        near = there.setdefault(here, entry.id) if here else entry.id
        mine = head.setdefault(near, near)
        theirs = head.setdefault(entry.script, entry.script) if shared else mine
        head[entry.id] = mine
        if mine != theirs:
            head.update({name: theirs for name, root in head.items() if root == mine})
    found: dict[str, list[Defect]] = {}
    for entry in entries:
        found.setdefault(head[entry.id], []).append(entry)
    for group in found.values():
        # One that refers to another for its reason does not explain the defect.
        yield tuple(sorted(group, key=lambda entry: bool(_ALIKE.match(entry.why))))


def _defect(group: tuple[Defect, ...], ground: Ground) -> KnownDefect:
    entry = group[0]
    # Entries without a scenario show only behind mended defects.
    shown = [each for each in group if _scenarios(each)] or group
    reached = {pair for each in shown for pair in _reached(each, ground.cases)}
    families = tuple(sorted({family for family, _ in reached}))
    named = dict.fromkeys(name for each in group for name in _scenarios(each))
    scenarios = tuple(name for name in named if any(name == shown for _, shown in reached))
    engines = [glob for each in group for glob in each.engines]
    severity = _severity(group)
    said = next((each.suffers for each in group if each.suffers), "")
    devices = {each.device for each in group}
    mend = next((mend for mend in ground.mends if entry.id in mend.defects), None)
    return KnownDefect(
        id=entry.id,
        entries=tuple(each.id for each in group),
        severity=severity,
        suffers=" ".join(said.split()) or _derived(severity, families, scenarios, ground),
        package=entry.package,
        versions=entry.versions,
        families=families,
        scenarios=scenarios,
        cases=len(reached),
        served=entry.served and any(matches(name, engines) for name in ground.generators),
        device=entry.device.replace("(", "") if len(devices) == 1 else "",
        where=tuple(at(p, entry.functions.get(str(p))) for p in places(entry.where)),
        why=" ".join(entry.why.split()),
        script=entry.script if entry.by_hand else "",
        mend=mend.summary if mend else "",
        needs={
            line.family: ", ".join(needed(line.schedule))
            for line in ground.lock
            if line.entry == entry.id
        },
    )


def _severity(group: tuple[Defect, ...]) -> Severity:
    """What the first entry says of itself, else the worst of all."""
    kinds = list(Severity)
    return group[0].severity or min((entry.harm for entry in group), key=kinds.index)


def _scenarios(entry: Defect) -> tuple[str, ...]:
    return (*entry.verdicts, *entry.other_seeds)


def _reached(entry: Defect, cases: Cases) -> Iterator[tuple[str, str]]:
    """Pairs of family and scenario; without a scenario of its own, each family once."""
    for engine, families in cases.items():
        if matches(engine, entry.engines):
            for family, scenarios in families.items():
                if entry.is_about(engine, family):
                    named = _scenarios(entry) or ("",)
                    yield from ((family, s) for s in named if not s or s in scenarios)


_SENTENCES: Mapping[Severity, str] = {
    Severity.TOKENS: "{who} wrong tokens",
    Severity.CRASH: "{who} an error or no answer",
    Severity.DRIFT: "{who} wrong probabilities",
    Severity.REPLY: "{who} a wrong reply",
    Severity.WASTE: "{who} the right answer, with more work or memory than it takes",
    Severity.HIDDEN: "{who} nothing by itself: another defect comes before it",
}


def _derived(
    severity: Severity, families: tuple[str, ...], scenarios: tuple[str, ...], ground: Ground
) -> str:
    """The sentence about a defect without one: from its kind, its families and a scenario."""
    who = f"{families[0]} gives" if len(families) == 1 else f"{len(families)} families give"
    what = ground.summaries.get(scenarios[0], "") if scenarios else ""
    seen = f"; seen with: {what}" if what else ""
    return f"{_SENTENCES[severity].format(who=who)}{seen}."


# Short scripts for upstream issues: ``expectations/issues/ID.py`` is the script, ``ID.txt`` what it
# printed, the release first. ``python ci/issues.py`` runs the scripts and writes their output.
def issue_scripts(folder: Path | None = None) -> dict[str, IssueScript]:
    """The scripts of a folder of expectations, by default the project's own, by known defect.

    Raises:
        ExpectationError: a script has no output, or a file cannot be read.
    """
    issues = (OWN if folder is None else folder) / "issues"
    return {path.stem: _read(path) for path in sorted(issues.glob("*.py"))}


def _read(path: Path) -> IssueScript:
    printed = path.with_suffix(".txt")
    if not printed.is_file():
        raise ExpectationError(f"{path}: its output is not there; run python ci/issues.py")
    release, _, output = read_text(printed, ExpectationError).partition("\n")
    return IssueScript(read_text(path, ExpectationError), release, output.strip())
