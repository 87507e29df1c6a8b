"""Compares two runs by their results: new failures, fixes and other changes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.core.errors import ResultError
from conformance.core.grouping import compared
from conformance.core.verdict import CaseResult, ScheduleResult, Verdict
from conformance.report.cost_table import moved_costs
from conformance.report.markdown import code, limited, table
from conformance.report.matrix import GLYPHS, UNEXPECTED, Cell
from conformance.report.moved import less_covered, moved

NOISE_FACTOR = 4.0
"""A change of noise by this factor is reported; run-to-run changes are far smaller."""


class Kind(enum.StrEnum):
    """How a case of the second run differs from the first, worst first."""

    FAILING = "newly failing"
    WORSE = "worse verdict"
    LOST = "lost coverage"
    FIXED = "fixed"
    CHANGED = "changed verdict"
    EXPLAINED = "failing as before, now known"
    MOVED = "known, shows otherwise"
    COST = "changed cost"
    NOISE = "changed noise"
    NEW = "new coverage"

    @property
    def regression(self) -> bool:
        """Whether it is a regression."""
        return self in (Kind.FAILING, Kind.WORSE, Kind.LOST)


@dataclass(frozen=True)
class Change:
    """One case that differs; ``before`` and ``after`` are ``None`` if it was not run.

    ``factor`` is new noise divided by old noise; 1 if unknown.
    """

    kind: Kind
    before: CaseResult | None
    after: CaseResult | None
    factor: float = 1.0

    @property
    def result(self) -> CaseResult:
        """The later of the two results that exists."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def text(self) -> str:
        """The change in a few words."""
        inside = less_covered(self.before, self.after) if self.before and self.after else ""
        if self.kind is Kind.LOST and inside:
            return f"{_verdict(self.after)}: {inside}"
        if self.kind is Kind.MOVED:
            assert self.before is not None
            assert self.after is not None
            return f"{_verdict(self.after)}: {moved(self.before, self.after)}"
        if self.kind is Kind.COST:
            assert self.before is not None
            assert self.after is not None
            return "; ".join(moved_costs(self.before, self.after))
        if self.kind is Kind.NOISE:
            assert self.before is not None
            assert self.after is not None
            return f"{self.before.noise:.2g} -> {self.after.noise:.2g} nats, x{self.factor:.2g}"
        return f"{_verdict(self.before)} -> {_verdict(self.after)}"


@dataclass(frozen=True)
class Comparison:
    """All changes, worst first, then by case.

    Attributes:
        changes: the differences; a case may have several, of its verdict, its counts and its noise.
        same: the number of cases with an unchanged verdict.
        versions: packages whose version differs: before and after.
        missing: how many cases of the second run were planned and have no result.
    """

    changes: tuple[Change, ...]
    same: int
    versions: dict[str, tuple[str, str]]
    missing: int = 0

    def of(self, kind: Kind) -> tuple[Change, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.kind is kind)

    @property
    def regressed(self) -> bool:
        """Whether something is worse than before, or may be worse because it was not run."""
        return self.missing > 0 or any(change.kind.regression for change in self.changes)


def compare(
    before: Sequence[CaseResult],
    after: Sequence[CaseResult],
    *,
    noise_factor: float = NOISE_FACTOR,
    common: bool = False,
    missing: int = 0,
) -> Comparison:
    """What changed from one run to another.

    Args:
        noise_factor: smaller changes of noise are not reported.
        common: compare only cases of both runs, for when the second run is partial.
        missing: how many cases of the second run were planned and have no result.

    Raises:
        ResultError: a run has no case, or a case twice.
    """
    found = compared(by_case(before, "first"), by_case(after, "second"))
    changes = [c for old, new in found.both.values() for c in _changes(old, new, noise_factor)]
    if not common:
        changes += [Change(Kind.LOST, r, None) for r in found.went.values()]
        changes += [
            Change(Kind.NEW if r.expected else Kind.FAILING, None, r) for r in found.came.values()
        ]
    order = list(Kind)
    changes.sort(key=lambda change: (order.index(change.kind), change.result.case))
    moves = (Kind.MOVED, Kind.LOST)
    changed = {change.result.case for change in changes if change.kind in moves}
    same = sum(
        old.verdict is new.verdict and name not in changed
        for name, (old, new) in found.both.items()
    )
    return Comparison(tuple(changes), same, _versions(before, after), missing)


def by_case(results: Iterable[CaseResult], which: str) -> dict[str, CaseResult]:
    """The results of one file by case id; ``which`` names it in an error.

    Raises:
        ResultError: it has no case, or a case twice.
    """
    found: dict[str, CaseResult] = {}
    for result in results:
        if result.case in found:
            raise ResultError(f"the {which} file has the case {result.case} twice")
        found[result.case] = result
    if not found:
        raise ResultError(f"the {which} file has no results")
    return found


def _changes(old: CaseResult, new: CaseResult, noise_factor: float) -> list[Change]:
    found = []
    kind = _kind(old, new)
    if kind is not None:
        found.append(Change(kind, old, new))
    if kind is not Kind.LOST and less_covered(old, new):
        found.append(Change(Kind.LOST, old, new))
    if moved_costs(old, new):
        found.append(Change(Kind.COST, old, new))
    if old.noise and new.noise:
        factor = new.noise / old.noise
        if max(factor, 1 / factor) >= noise_factor:
            found.append(Change(Kind.NOISE, old, new, factor))
    return found


def _kind(old: CaseResult, new: CaseResult) -> Kind | None:
    if old.expected != new.expected:
        if old.expected:
            return Kind.FAILING
        return Kind.FIXED if rank(new) == 0 else Kind.EXPLAINED
    if old.verdict is new.verdict or old.mended_alone != new.mended_alone:
        # As released and mended there is nothing to compare.
        return Kind.MOVED if moved(old, new) else None
    if new.verdict is Verdict.UNSUPPORTED:
        return Kind.LOST if old.verdict.good else Kind.CHANGED
    if rank(new) > rank(old):
        return Kind.WORSE
    return Kind.FIXED if new.verdict.good > old.verdict.good else Kind.CHANGED


def rank(found: CaseResult | ScheduleResult) -> int:
    """0 if right, else the verdict's severity."""
    return 0 if found.verdict.good else found.verdict.severity


def _versions(
    before: Sequence[CaseResult], after: Sequence[CaseResult]
) -> dict[str, tuple[str, str]]:
    old, new = (
        {name: ", ".join(versions) for name, versions in versions_of(run).items()}
        for run in (before, after)
    )
    found = compared(old, new)
    gone = {name: (version, "none") for name, version in found.went.items()}
    fresh = {name: ("none", version) for name, version in found.came.items()}
    return dict(sorted({**gone, **fresh, **found.changed}.items()))


def versions_of(results: Iterable[CaseResult]) -> dict[str, list[str]]:
    """Each package's versions, and the devices; several if the results are of several runs."""
    found: dict[str, set[str]] = {}
    for result in results:
        for name, version in {**result.versions, "device": result.device}.items():
            found.setdefault(name, set()).add(version)
    return {name: sorted(found[name]) for name in sorted(found)}


def _verdict(result: CaseResult | None) -> str:
    if result is None:
        return "not run"
    known = f" (known: {result.known})" if result.known else ""
    return result.verdict.value + ("" if result.expected else "!") + known


# A comparison of two runs as Markdown for a pull request ------------------------------------------

MOST_BYTES = 65_000
"""A comment on a pull request may hold 65536 characters."""
# Changes that leave a cell as it was, or that can be many.
_SAME_GLYPH = (Kind.NOISE, Kind.COST, Kind.EXPLAINED, Kind.MOVED)


def markdown(found: Comparison) -> str:
    """Totals, then changed cells, then each change; what does not fit is only counted."""
    return limited(comparison_lines(found), MOST_BYTES)


def comparison_lines(found: Comparison) -> list[str]:
    """The lines of ``markdown``, without a limit."""
    return [*_head(found), *_cells(found), *_each(found)]


def summary(found: Comparison) -> str:
    """The number of changes of each kind, in one line."""
    counts = [f"{len(found.of(kind))} {kind}" for kind in Kind if found.of(kind)]
    missing = [f"{found.missing} planned and not run"] if found.missing else []
    return ", ".join([*missing, *counts, f"{found.same} as before"])


def _head(found: Comparison) -> Iterator[str]:
    yield "### Conformance: " + ("regressed" if found.regressed else "no regression")
    yield ""
    yield summary(found)
    if found.versions:
        yield ""
        pairs = found.versions.items()
        yield from (f"- {code(name)}: {code(a)} -> {code(b)}" for name, (a, b) in pairs)


def _cells(found: Comparison) -> Iterator[str]:
    """Families and scenarios with a change of verdict, as ``before > after`` glyphs.

    Failures that became known are left to the list of cases: there are often many.
    """
    moved = [c for c in found.changes if c.kind not in _SAME_GLYPH]
    both = [c for c in moved if c.before and c.after]
    lanes = sorted({(c.result.engine, c.result.dtype) for c in both})
    for engine, dtype in lanes:
        mine = [c for c in both if (c.result.engine, c.result.dtype) == (engine, dtype)]
        columns = list(dict.fromkeys(c.result.scenario for c in mine))
        yield from ("", f"{code(f'{engine} {dtype}')}: changed cells, before > after", "")
        rows = []
        for family in dict.fromkeys(c.result.family for c in mine):
            cells = {c.result.scenario: _cell(c) for c in mine if c.result.family == family}
            rows.append((code(family), *(cells.get(name, "") for name in columns)))
        yield from table(("family", *map(code, columns)), rows)
    if both:
        glyphs = {
            r.verdict: GLYPHS[r.verdict] for c in both for r in (c.before, c.after) if r is not None
        }
        yield ""
        legend = [f"`{glyph}` {verdict}" for verdict, glyph in glyphs.items()]
        yield ", ".join([*legend, f"`{UNEXPECTED}` not expected"])


def _cell(change: Change) -> str:
    assert change.before is not None
    assert change.after is not None
    mark = "**" if change.kind.regression else ""
    before, after = (Cell(r.verdict, r.expected).text for r in (change.before, change.after))
    glyphs = f"{before} > {after}"
    return f"{mark}`{glyphs}`{mark}"


def _each(found: Comparison) -> Iterator[str]:
    for kind in Kind:
        changes = found.of(kind)
        if not changes:
            continue
        yield from ("", f"#### {kind} ({len(changes)})", "")
        rows = [(code(c.result.case), f"{code(c.text)}{_why(c)}") for c in changes]
        yield from table(("case", "what"), rows)


def _why(change: Change) -> str:
    """The first finding of a regression, on one line."""
    after = change.after
    if not change.kind.regression or after is None or not after.evidence:
        return ""
    return f"<br>{code(after.evidence[0].what[:200])}"
