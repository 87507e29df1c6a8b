"""The one case that a command is about."""

from __future__ import annotations

import difflib

from conformance.app.pytest_plugin.setup import Setup
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId
from conformance.run.selection import Selection, cases


def case_of(setup: Setup, text: str) -> CaseId:
    """The case written as ``text``, if there is such a case.

    Raises:
        ConformanceError: there is none; names one that is written nearly so.
    """
    case = CaseId.parse(text)
    everything = Selection(
        engines=tuple(setup.registry.engines), dtypes=(case.dtype,), seeds=(case.seed,)
    )
    known = cases(setup.registry, everything)
    if case not in known:
        near = difflib.get_close_matches(str(case), [str(other) for other in known], n=1)
        hint = f"; did you mean {near[0]}?" if near else " (`conformance list` shows what there is)"
        raise ConformanceError(f"there is no case {case}{hint}")
    return case
