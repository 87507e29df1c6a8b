"""Finds the case that a command's argument names."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.core.errors import ConformanceError
from conformance.core.nearest import did_you_mean
from conformance.core.verdict import CaseId
from conformance.run.registry import Registry
from conformance.run.selection import DTYPES, Selection, cases


def case_of(registry: Registry, text: str) -> CaseId:
    """The case with the id ``text``.

    Raises:
        ResultError: the text is not a case id.
        ConformanceError: there is no such case; the message suggests similar names.
    """
    case = CaseId.parse(text)
    if registry.lacking((case.engine,)):
        registry.select_engines((case.engine,))  # names parts that are left out
    everything = Selection(engines=tuple(registry.engines), dtypes=DTYPES, seeds=(case.seed,))
    known = cases(registry, everything)
    if case not in known:
        raise ConformanceError(f"there is no case {case}{near(str(case), map(str, known))}")
    return case


def near(name: str, known: Iterable[str]) -> str:
    """A similar known name, or where to look, as the end of a sentence."""
    return did_you_mean(name, known) or " (`conformance show` shows what there is)"
