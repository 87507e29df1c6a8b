"""Whose prompt was shortened by an earlier one, and what was around it."""

from msgspec.structs import replace

from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import FinishReason, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.scenarios import reuse_witnesses as seen

LONG = tuple(range(9))
PROMPTS = {"a": LONG, "b": LONG, "c": (*LONG[:6], 50, 51), "d": (60, 61)}
SCHEDULE = Schedule("s", (Arrival(tuple(Request(n, p, 2) for n, p in PROMPTS.items())),))


def step(*, reused=None, worked="", ends="", removed=None, **stages):
    """``worked`` and ``ends`` name requests by one letter."""
    events = tuple(TokenEvent(n, 1, finish_reason=FinishReason.LENGTH) for n in ends)
    output = StepOutput(events, dict.fromkeys(worked, 1), reused=reused or {})
    return Step(0, stages, output, removed_from=removed or {})


def holds(witness, *steps):
    return witness.seen(Trace(SCHEDULE, Mode.FREE, steps))


def test_a_hit_is_a_prefix_that_is_reused():
    assert holds(seen.hit(), step(worked="a"), step(worked="b", reused={"b": 8}))
    assert not holds(seen.hit(), step(worked="ab"))


def test_a_part_is_less_than_what_is_shared_and_could_be_reused():
    assert holds(seen.hit_of_part(), step(worked="c", reused={"c": 4}))
    assert not holds(seen.hit_of_part(), step(worked="c", reused={"c": 6}))
    assert not holds(seen.hit_of_part(), step(worked="b", reused={"b": 8})), "all but the last"
    assert not holds(seen.hit_of_part(), step(worked="d"))


def test_a_part_of_what_was_kept_whole_was_cut_within_a_block():
    options = EngineOptions(prefix_caching=PrefixCaching(block_size=4))
    cut = Trace(replace(SCHEDULE, options=options), Mode.FREE, (step(worked="c", reused={"c": 6}),))
    assert seen.hit_of_part().seen(cut)
    whole = EngineOptions(prefix_caching=PrefixCaching(block_size=3))
    edge = Trace(replace(SCHEDULE, options=whole), Mode.FREE, (step(worked="c", reused={"c": 6}),))
    assert not seen.hit_of_part().seen(edge)


def test_a_cold_prompt_must_begin_in_the_same_step():
    witness = seen.beside_cold()
    assert holds(witness, step(worked="a"), step(worked="bd", reused={"b": 8}))
    assert not holds(witness, step(worked="d"), step(worked="bd", reused={"b": 8}))
    assert not holds(witness, step(worked="bc", reused={"b": 8, "c": 4}))


def test_a_late_hit_is_one_while_another_decodes_and_goes_on():
    witness = seen.late_hit()
    late, on = step(worked="b", reused={"b": 8}, a=Stage.DECODE), step(a=Stage.DECODE)
    assert holds(witness, late, on)
    assert not holds(witness, late, step(a=Stage.FINISHED)), "it ended in that step"
    assert not holds(witness, late, step(b=Stage.DECODE))
    assert not holds(witness, step(worked="b", reused={"b": 8}, a=Stage.PREFILL), on)
    assert not holds(witness, step(worked="b", a=Stage.DECODE), on)


def test_an_evicted_prompt_comes_again_after_the_first_has_ended():
    witness = seen.evicted()
    assert holds(witness, step(worked="a", ends="a"), step(worked="b"))
    assert not holds(witness, step(worked="a", ends="a"), step(worked="b", reused={"b": 4}))
    assert not holds(witness, step(worked="ab", ends="a"))
    assert not holds(witness, step(worked="a", ends="a"), step(worked="d"))


def test_who_is_removed_must_have_reused_a_prefix():
    witness = seen.removed(Stage.PREFILL)
    hit = step(worked="b", reused={"b": 4})
    assert holds(witness, hit, step(removed={"b": Stage.PREFILL}))
    assert not holds(witness, hit, step(removed={"b": Stage.DECODE}))
    assert not holds(witness, hit, step(removed={"a": Stage.PREFILL}))
