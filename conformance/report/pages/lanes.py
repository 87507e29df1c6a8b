"""Counts for each engine and dtype: how many cases exist, were run, and are proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.inventory import Inventory
from conformance.core.verdict import CaseResult, Verdict

_UNDECIDED = (Verdict.UNSUPPORTED, Verdict.POLICY, Verdict.VACUOUS)


@dataclass(frozen=True)
class Lane:
    """One engine in one dtype with one seed, in counts.

    Every case that applies is in the denominator, whether it was run or not: ``proven``, ``wrong``
    and ``undecided`` add up to ``run``; ``run`` and ``missing`` add up to all cases. Counts that
    are unknown because an engine is not installed are ``None``.

    proven: exact or tie.
    wrong: cases with an error.
    known: wrong cases with an entry in the expectations.
    undecided: unsupported, policy or vacuous: neither right nor wrong.
    unexpected: cases with an unexpected verdict.
    """

    engine: str
    dtype: str
    seed: int
    families_run: int
    families: int | None
    run: int
    proven: int
    wrong: int
    known: int
    undecided: int
    unexpected: int
    missing: int | None

    @property
    def applicable(self) -> int | None:
        """The number of cases that exist."""
        return None if self.missing is None else self.run + self.missing

    @property
    def share(self) -> float | None:
        """The proven share of all cases that exist."""
        return self.proven / self.applicable if self.applicable else None


def lanes(results: Sequence[CaseResult], inventory: Inventory) -> tuple[Lane, ...]:
    """One for each engine, dtype and seed, in the order of their first result."""
    groups: dict[tuple[str, str, int], list[CaseResult]] = {}
    for result in results:
        groups.setdefault((result.engine, result.dtype, result.seed), []).append(result)
    return tuple(_lane(*key, group, inventory) for key, group in groups.items())


def _lane(
    engine: str, dtype: str, seed: int, group: list[CaseResult], inventory: Inventory
) -> Lane:
    applicable = inventory.applicable.get(engine)
    run = {(result.family, result.scenario) for result in group}
    wrong = [r for r in group if not r.verdict.good and r.verdict not in _UNDECIDED]
    missing = None
    if applicable is not None:
        there = {(family, name) for family, names in applicable.items() for name in names}
        missing = len(there - run)
    return Lane(
        engine=engine,
        dtype=dtype,
        seed=seed,
        families_run=len({family for family, _ in run}),
        families=None if applicable is None else len(applicable),
        run=len(group),
        proven=sum(result.verdict.good for result in group),
        wrong=len(wrong),
        known=sum(result.known is not None for result in wrong),
        undecided=sum(result.verdict in _UNDECIDED for result in group),
        unexpected=sum(not result.expected for result in group),
        missing=missing,
    )
