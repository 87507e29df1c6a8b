"""Cancelling is asked of every engine that declares it, whatever else it can do."""

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import LADDER

(CANCELLED,) = (scenario for scenario in LADDER if scenario.name == "cancelled")
WITHOUT = [
    {Capability.CHUNKED},
    {Capability.LATE_JOIN},
    {Capability.STAGES},
    {Capability.CHUNKED, Capability.STAGES, Capability.LATE_JOIN},
]


def judged(lacking, **changes):
    """Without stages an engine reports none."""
    capabilities = ContinuousBatching.capabilities - lacking
    if Capability.STAGES in lacking:
        changes["stages"] = lambda self: {}
    engine = type("Engine", (ContinuousBatching,), {"capabilities": capabilities, **changes})
    model = subject()
    assert not CANCELLED.lacking(capabilities)
    schedules = CANCELLED.make(brief_for(model, engine, 0))
    return judge_batched(model, engine, CANCELLED, schedules)


@pytest.mark.parametrize("lacking", WITHOUT, ids=lambda lacking: ", ".join(sorted(lacking)))
def test_an_engine_that_removes_nothing_is_found_whatever_it_lacks(lacking):
    outcome = judged(lacking, remove=lambda self, request_ids: None)
    assert outcome.verdict is Verdict.PROTOCOL
    assert any(found.what.startswith("a token after its removal") for found in outcome.findings)


@pytest.mark.parametrize("lacking", WITHOUT, ids=lambda lacking: ", ".join(sorted(lacking)))
def test_one_that_removes_is_right(lacking):
    outcome = judged(lacking)
    assert outcome.verdict is Verdict.EXACT, outcome.findings
    assert "rows" in [schedule.name for schedule in outcome.schedules]
    assert Capability.CANCEL in outcome.exercised
    assert any(w.name == "a removal in decode" and w.schedules for w in outcome.witnesses)


def test_of_an_engine_that_can_do_all_the_schedules_are_those_of_before():
    names = [schedule.name for schedule in judged(frozenset()).schedules]
    assert "rows" not in names
    assert len(names) == 8
