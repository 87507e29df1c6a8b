"""A witness is required of engines that can have it; what a model excludes is reported."""

import pytest
from miniatures import caching
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.engine import Capability, PrefixReuse
from conformance.core.schedule import Schedule
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import Scenario, Witness
from conformance.scenarios.build import SHORT, text_request, together
from conformance.scenarios.prefix_caching import PREFIX_CACHING

WHY = "rows of unequal length in one pass are not supported: one offset for all"


class Alone(ContinuousBatching):
    """Promises no prompts in one pass."""

    capabilities = ContinuousBatching.capabilities - {Capability.TOGETHER}


class Apart(ContinuousBatching):
    """Its model can't have unequal rows in one pass."""

    @classmethod
    def apart(cls, model):
        return WHY


class Uncut(ContinuousBatching):
    """Its model takes prompts whole."""

    @classmethod
    def uncut(cls, model):
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


def test_of_a_model_that_takes_prompts_whole_no_pieces_are_required():
    outcome = judge(Uncut, never(cut=True))
    assert (outcome.verdict, excuses(outcome)) == (Verdict.EXACT, {"what never happens": WHY})
    assert judge(Uncut, never()).verdict is Verdict.VACUOUS
    assert judge(ContinuousBatching, never(cut=True)).verdict is Verdict.VACUOUS


NOT_STORED = "the engine does not declare stored"


def declaring(engine, **rules):
    """The engine, with rules that it declares."""
    return type(engine.__name__, (engine,), {"prefix_reuse": PrefixReuse(**rules)})


def play_prefixes(engine, *names):
    """The outcome of ``prefix_caching``, or of those of its schedules that a tier might have."""
    toy = subject()
    made = PREFIX_CACHING.make(brief_for(toy, engine, 0))
    played = [schedule for schedule in made if not names or schedule.name in names]
    return judge_batched(toy, engine, PREFIX_CACHING, played)


def excuses(outcome):
    return {result.name: result.excused for result in outcome.witnesses if result.excused}


def test_a_witness_that_the_declaration_excludes_is_not_required():
    assert play_prefixes(caching.KeepsLongOnes).verdict is Verdict.VACUOUS
    outcome = play_prefixes(declaring(caching.KeepsLongOnes, smallest=20))
    assert outcome.verdict is Verdict.EXACT
    why = "the engine declares PrefixReuse(smallest=20)"
    found = {name: excuse for name, excuse in excuses(outcome).items() if excuse != NOT_STORED}
    assert found == {
        "a reused prefix while another request decodes": why,
        "a removal in prefill of a request that reused a prefix": why,
    }


def test_an_engine_that_publishes_on_completion():
    late = "a reused prefix while another request decodes"
    (missing,) = play_prefixes(caching.KeepsEnded).findings
    assert (missing.verdict, missing.expected) == (Verdict.VACUOUS, late)
    outcome = play_prefixes(declaring(caching.KeepsEnded, on_completion=True), "late", "in_turn")
    assert outcome.findings == ()
    assert excuses(outcome)[late] == "the engine declares PrefixReuse(on_completion=True)"


def test_where_nothing_can_be_reused_the_case_is_unsupported():
    outcome = play_prefixes(declaring(caching.NeverReuses, smallest=1000, block_size=16))
    assert outcome.verdict is Verdict.UNSUPPORTED
    (finding,) = outcome.findings
    assert finding.got == "the engine declares PrefixReuse(smallest=1000)"


def test_witnesses_of_schedules_that_are_left_out_are_not_required():
    outcome = play_prefixes(caching.ReusesWhenIdle, "in_turn", "evicted")
    assert outcome.verdict is Verdict.EXACT
    left_out = excuses(outcome)
    assert left_out["a reused prefix while another request decodes"] == "not played: late"
    assert "a prefix that is reused" not in left_out
    assert play_prefixes(caching.ReusesWhenIdle, "in_turn", "late").verdict is Verdict.VACUOUS


def judged_in_a_tier(witness, *left_out):
    """``one`` is played; other schedules of the scenario are left out."""
    toy = subject()
    made = [Schedule("one", (together(text_request(brief(toy), "a", SHORT)),))]
    scenario = Scenario("some", 1, "x", frozenset(), lambda brief: made, (witness,))
    return judge_batched(toy, ContinuousBatching, scenario, made, left_out=left_out)


def brief(toy):
    return brief_for(toy, ContinuousBatching, 0)


def test_what_a_schedule_that_the_tier_leaves_out_may_show_is_not_required():
    outcome = judged_in_a_tier(never(), "other")
    assert outcome.verdict is Verdict.EXACT
    (witness,) = outcome.witnesses
    assert (witness.schedules, witness.excused) == ((), "not played: other")


def test_what_only_a_schedule_that_was_played_could_show_is_required():
    assert judged_in_a_tier(never().shown_in("one"), "other").verdict is Verdict.VACUOUS
    assert judged_in_a_tier(never()).verdict is Verdict.VACUOUS
