"""A witness is required of engines that can have it; what a model excludes is reported."""

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.schedule import Schedule
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import Scenario, Witness
from conformance.scenarios.build import SHORT, text_request, together

WHY = "rows of unequal length in one pass are not supported: one offset for all"


class Alone(ContinuousBatching):
    """Promises no prompts in one pass."""

    capabilities = ContinuousBatching.capabilities - {Capability.TOGETHER}


class Apart(ContinuousBatching):
    """Its model can't have unequal rows in one pass."""

    @classmethod
    def apart(cls, model):
        return WHY


def judge(engine, *witnesses):
    toy = subject()
    scenario = Scenario(
        "one",
        1,
        "one row",
        frozenset(),
        lambda brief: [Schedule("one", (together(text_request(brief, "a", SHORT)),))],
        witnesses,
    )
    made = scenario.make(brief_for(toy, engine, 0))
    return judge_batched(toy, engine, scenario, made)


def never(**more):
    return Witness("what never happens", lambda trace: False, **more)


@pytest.mark.parametrize(
    ("engine", "verdict"), [(ContinuousBatching, Verdict.VACUOUS), (Alone, Verdict.EXACT)]
)
def test_a_witness_is_asked_of_engines_that_have_what_it_needs(engine, verdict):
    assert judge(engine, never(needs=frozenset({Capability.TOGETHER}))).verdict is verdict


def test_where_rows_cant_share_a_pass_the_engine_says_why():
    outcome = judge(Apart, never(shared=True))
    assert outcome.verdict is Verdict.UNSUPPORTED
    assert [finding.got for finding in outcome.findings] == [WHY]


def test_what_has_nothing_to_do_with_it_is_vacuous_all_the_same():
    assert judge(Apart, never()).verdict is Verdict.VACUOUS
    assert judge(Apart, never(shared=True), never()).verdict is Verdict.VACUOUS
    assert judge(ContinuousBatching, never(shared=True)).verdict is Verdict.VACUOUS


def test_what_was_seen_is_not_excused():
    seen = Witness("what happens", lambda trace: True, shared=True)
    assert judge(Apart, seen).verdict is Verdict.EXACT
