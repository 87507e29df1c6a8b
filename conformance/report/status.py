"""Engines over their releases: what each conforms at, and what came and went.

A case counts as released: a known upstream defect is a wrong case here.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from conformance.core.levels import LEVELS, Level
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.badge import Badge
from conformance.report.history import History, State, histories, state_of
from conformance.report.matrix import GLYPHS, mark
from conformance.report.outcome import listed

_BENEATH = frozenset({"python", "mlx", "transformers", "numpy"})
"""Packages in a result's versions that are neither an engine nor its library."""

_SOURCE = " source"  # the end of a checkout's key in a result's versions
_NAMED = 4  # schedules named in a change


def release_of(result: CaseResult) -> tuple[str, str]:
    """The package whose releases an engine's results are of, and the release.

    It is the last package that is recorded, as an engine's own packages follow its library: for
    ``vllm-mlx`` the release is ``0.4.0 on mlx-lm 0.32.2``. A checkout's path and commit follow.
    """
    names = [n for n in result.versions if n not in _BENEATH and not n.endswith(_SOURCE)]
    if not names:
        return "", "unknown"
    *others, own = names
    text = _version(result, own)
    on = ", ".join(f"{name} {_version(result, name)}" for name in others)
    return own, f"{text} on {on}" if on else text


def _version(result: CaseResult, package: str) -> str:
    source = result.versions.get(f"{package}{_SOURCE}", "")
    return f"{result.versions[package]} at {source}" if source else result.versions[package]


# What an engine conforms at -----------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How many families are right in all their cases of a level, of those with a decided case."""

    level: Level
    right: int
    decided: int
    scenarios: tuple[str, ...]

    @property
    def all_right(self) -> bool:
        """Whether every decided family is right."""
        return self.right == self.decided

    @property
    def most(self) -> bool:
        """Whether more than half of them are."""
        return 2 * self.right > self.decided

    @property
    def text(self) -> str:
        """The level's name, and the counts unless all or none are right."""
        if self.all_right or not self.right:
            return self.level.name
        return f"{self.level.name} ({self.right} of {self.decided})"


def standings(results: Iterable[CaseResult]) -> tuple[Standing, ...]:
    """The standing of each level that has a decided case, in their order."""
    found = tuple(results)
    every = (_standing(level, [r for r in found if level.has(r.scenario)]) for level in LEVELS)
    return tuple(standing for standing in every if standing.decided)


def _standing(level: Level, own: Sequence[CaseResult]) -> Standing:
    decided = [result for result in own if _state(result) is not State.UNKNOWN]
    families = {result.family for result in decided}
    wrong = {result.family for result in decided if _state(result) is State.WRONG}
    scenarios = tuple(dict.fromkeys(result.scenario for result in decided))
    return Standing(level, len(families - wrong), len(families), scenarios)


def _state(result: CaseResult) -> State:
    """The state of the code as released; a case that was run only mended is wrong there."""
    return State.WRONG if result.mended_alone else state_of(result.verdict)


def level_sentence(found: Sequence[Standing], *, counts: bool = True) -> str:
    """``conforms at together, late join; in most families at prefixes (9 of 12); not at media``."""
    groups = (
        ("at", [one for one in found if one.all_right]),
        ("in most families at", [one for one in found if one.most and not one.all_right]),
        ("in some families at", [one for one in found if one.right and not one.most]),
        ("not at", [one for one in found if not one.right]),
    )
    parts = [
        f"{words} {', '.join(one.text if counts else one.level.name for one in own)}"
        for words, own in groups
        if own
    ]
    conforms = "conforms " if any(one.right for one in found) else ""
    return conforms + "; ".join(parts) if parts else "nothing is decided"


# Engines and releases -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """The cases of a family in a release: how many are right, of those that are decided.

    ``worst`` is the wrong case with the worst verdict; one that is not expected first.
    """

    right: int
    decided: int
    worst: CaseResult | None = None

    @property
    def glyph(self) -> str:
        """The glyph of the worst case, as in the matrix."""
        if self.worst is None:
            return GLYPHS[Verdict.EXACT]
        mended = self.worst.right_once_mended
        return GLYPHS[self.worst.verdict] + mark(expected=self.worst.expected, mended=mended)

    @property
    def style(self) -> str:
        """The style-sheet classes of its colour."""
        if self.worst is None:
            return "v-exact"
        if not self.worst.expected:
            return "unexpected"
        return "mended" if self.worst.right_once_mended else "known"

    @property
    def text(self) -> str:
        """What its colour says, in words."""
        if self.worst is None:
            return f"{self.right} of {self.decided} right"
        kind = "known" if self.worst.expected else "not expected"
        return f"{self.right} of {self.decided} right; worst: {self.worst.verdict}, {kind}"


@dataclass(frozen=True)
class Release:
    """An engine in one release: the newest result of each case.

    ``started`` is the time of the newest result, empty if it is not recorded.
    """

    name: str
    started: str
    results: tuple[CaseResult, ...]

    @functools.cached_property
    def standings(self) -> tuple[Standing, ...]:
        """What it conforms at."""
        return standings(self.results)

    @functools.cached_property
    def families(self) -> dict[str, Cell]:
        """A cell for each family with a decided case."""
        own: dict[str, list[CaseResult]] = {}
        for result in self.results:
            if _state(result) is not State.UNKNOWN:
                own.setdefault(result.family, []).append(result)
        return {family: _cell(own[family]) for family in sorted(own)}

    @property
    def right(self) -> int:
        """The number of right cases."""
        return sum(cell.right for cell in self.families.values())

    @property
    def decided(self) -> int:
        """The number of cases that are right or wrong."""
        return sum(cell.decided for cell in self.families.values())

    @property
    def undecided(self) -> int:
        """The number of all others: unsupported, vacuous, or a policy of the library."""
        return len(self.results) - self.decided

    @functools.cached_property
    def unexpected(self) -> tuple[CaseResult, ...]:
        """The cases that no known defect excuses."""
        return tuple(result for result in self.results if not result.expected)

    @property
    def day(self) -> str:
        """The day of the newest result."""
        return self.started[:10]

    def standing(self, level: Level) -> Standing | None:
        """The standing of one level."""
        return next((one for one in self.standings if one.level == level), None)


def _cell(own: Sequence[CaseResult]) -> Cell:
    wrong = [result for result in own if _state(result) is State.WRONG]
    key = functools.partial(max, key=lambda r: (not r.expected, r.verdict.severity))
    return Cell(len(own) - len(wrong), len(own), key(wrong) if wrong else None)


@dataclass(frozen=True)
class Moved:
    """Schedules of a family that are right in one release and wrong in the other.

    ``what`` is the first finding of the case ``example``.
    """

    family: str
    schedules: tuple[str, ...]
    what: str
    example: str

    @property
    def text(self) -> str:
        """The schedules, in a few words."""
        return listed(self.schedules, _NAMED)


@dataclass(frozen=True)
class Step:
    """What differs from one release to the next one: defects that came, and that went.

    ``compared`` is the number of schedules whose state is known in both.
    """

    old: Release
    new: Release
    came: tuple[Moved, ...]
    went: tuple[Moved, ...]
    compared: int

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        if not self.compared:
            return "no schedule was run in both"
        parts = [
            f"{sum(len(one.schedules) for one in moved)} {word}"
            for moved, word in ((self.came, "came"), (self.went, "went"))
            if moved
        ]
        return f"{' and '.join(parts) or 'nothing came or went'}, of {self.compared} schedules"


@dataclass(frozen=True)
class EngineStatus:
    """An engine over its releases, the oldest first."""

    engine: str
    package: str
    releases: tuple[Release, ...]

    @property
    def newest(self) -> Release:
        """The last release."""
        return self.releases[-1]

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """What came and went between releases, the newest step first."""
        return tuple(_step(old, new) for old, new in itertools.pairwise(self.releases))[::-1]

    @property
    def families(self) -> tuple[str, ...]:
        """All families with a decided case; those whose cells differ between releases first."""
        names = sorted({name for release in self.releases for name in release.families})
        return tuple(sorted(names, key=lambda name: not self._differs(name)))

    def _differs(self, family: str) -> bool:
        cells = [r.families[family] for r in self.releases if family in r.families]
        worst = {cell.worst.verdict if cell.worst else None for cell in cells}
        return len(worst) > 1 or len({cell.decided - cell.right for cell in cells}) > 1

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of which some release has a decided case."""
        return tuple(level for level in LEVELS if any(r.standing(level) for r in self.releases))

    @property
    def badge(self) -> Badge:
        """The newest release and its level; red if a verdict is unexpected, or no level right."""
        found = self.newest.standings
        colour = "brightgreen" if all(one.all_right for one in found) else "green"
        wrong = self.newest.unexpected or not any(one.right for one in found)
        colour = "lightgrey" if not found else "red" if wrong else colour
        return Badge(
            level_sentence(found, counts=False), colour, f"{self.engine} {self.newest.name}"
        )


def status_of(results: Iterable[CaseResult]) -> tuple[EngineStatus, ...]:
    """Engines by name, each with its releases; of a case's results in a release the newest counts.

    A right one that left schedules out does not count beside one that left out none.

    Args:
        results: results of any number of files, releases and engines.
    """
    found: dict[str, dict[tuple[str, str], dict[str, CaseResult]]] = {}
    for result in sorted(results, key=_weight):  # stable: of equal times the last one counts
        found.setdefault(result.engine, {}).setdefault(release_of(result), {})[result.case] = result
    return tuple(_engine(name, found[name]) for name in sorted(found))


def _engine(name: str, found: dict[tuple[str, str], dict[str, CaseResult]]) -> EngineStatus:
    releases = []
    for (package, release), cases in found.items():
        ordered = tuple(cases[case] for case in sorted(cases))
        releases.append((package, Release(release, max(map(_started, ordered)), ordered)))
    releases.sort(key=lambda pair: (_order(pair[1].name), pair[1].started))
    return EngineStatus(name, releases[-1][0], tuple(release for _, release in releases))


def _weight(result: CaseResult) -> tuple[bool, str]:
    return _state(result) is State.WRONG or not result.left_out, _started(result)


def _started(result: CaseResult) -> str:
    return result.invocation.started if result.invocation else ""


def _order(release: str) -> tuple[bool, Version, str]:
    """Versions by their numbers; a release without a number first."""
    try:
        return True, Version(release.split(" ", maxsplit=1)[0]), release
    except InvalidVersion:
        return False, Version("0"), release


def _step(old: Release, new: Release) -> Step:
    found = histories([(release.name, release.results) for release in (old, new)])
    known = [history for history in found if State.UNKNOWN not in history.states]
    changed = [history for history in known if history.changed]
    came = [history for history in changed if history.states[-1] is State.WRONG]
    went = [history for history in changed if history.states[-1] is State.RIGHT]
    return Step(old, new, tuple(_moved(came)), tuple(_moved(went)), len(known))


def _moved(found: Sequence[History]) -> Iterator[Moved]:
    """One for each family, the family with most schedules first."""
    counts = Counter(history.family for history in found)
    for family, _ in counts.most_common():
        own = [history for history in found if history.family == family]
        names = [f"{h.scenario}/{h.schedule}" if h.schedule else h.scenario for h in own]
        yield Moved(family, tuple(names), own[0].example, own[0].case)
