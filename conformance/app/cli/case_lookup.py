"""The one case that a command is about."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.core.errors import ConformanceError
from conformance.core.nearest import did_you_mean
from conformance.core.verdict import CaseId
from conformance.run.registry import Registry
from conformance.run.selection import DTYPES, Selection, cases


def case_of(registry: Registry, text: str) -> CaseId:
    """The case written as ``text``, if there is such a case.

    Raises:
        ResultError: it is no case id.
        ConformanceError: there is no such case; names one that is written nearly so.
    """
    case = CaseId.parse(text)
    if registry.lacking((case.engine,)):
        registry.select_engines((case.engine,))  # says what is left out, if that is its engine
    everything = Selection(engines=tuple(registry.engines), dtypes=DTYPES, seeds=(case.seed,))
    known = cases(registry, everything)
    if case not in known:
        raise ConformanceError(f"there is no case {case}{near(str(case), map(str, known))}")
    return case


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is written nearly so, or where to look, as the end of a sentence."""
    return did_you_mean(name, known) or " (`conformance show` shows what there is)"
