"""How many tokens of a draft were accepted, read from what came out after it."""

from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import FinishReason, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.scenarios import speculative as seen

SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 9), Request("b", (1,), 9))),))


def step(tokens="", *, drafted=None, ends="", **stages):
    """``tokens`` and ``ends`` name requests by one letter; ``drafted`` counts tokens."""
    events = [TokenEvent(name, 1) for name in tokens]
    events += [TokenEvent(name, 1, finish_reason=FinishReason.LENGTH) for name in ends]
    return Step(0, stages, StepOutput(tuple(events), drafted=drafted or {}))


def trace(*steps):
    return Trace(SCHEDULE, Mode.FREE, steps)


def rounds(*given):
    """Drafts of three tokens for ``a``, after each of which so many tokens came in one step."""
    return trace(step("a"), *(step("a" * n, drafted={"a": 3}) for n in given))


def accepted(found):
    witnesses = (seen.accepted_all(), seen.accepted_some(), seen.rejected())
    return tuple(witness.seen(found) for witness in witnesses)


def test_a_draft_is_accepted_whole_in_part_or_not():
    assert accepted(rounds(4, 1)) == (True, False, False)
    assert accepted(rounds(3, 4)) == (True, True, False)
    assert accepted(rounds(2, 1)) == (False, True, False)
    assert accepted(rounds(1, 2)) == (False, False, True)


def test_the_last_draft_may_be_cut_and_is_no_proof_but_of_the_whole():
    assert accepted(rounds(2)) == (False, False, False)
    assert accepted(rounds(4)) == (True, False, False)


def test_a_draft_at_whose_end_the_request_ended_is_no_proof_either():
    found = trace(step("a"), step("a", ends="a", drafted={"a": 3}), step(drafted={"b": 3}))
    assert accepted(found) == (False, False, False)


def test_the_tokens_of_a_draft_may_come_one_a_step():
    found = trace(step("a", drafted={"a": 3}), step("a"), step("a"), step("a", drafted={"a": 3}))
    assert accepted(found) == (False, True, False)


def test_another_requests_tokens_are_not_counted():
    found = trace(step("ab", drafted={"a": 3}), step("bbb"), step("b", drafted={"a": 3}))
    assert accepted(found) == (False, False, True)


def test_rows_are_drafted_for_in_one_step():
    found = trace(step(drafted={"a": 3}), step(drafted={"b": 3}))
    assert seen.verified_together(1).seen(found)
    assert not seen.verified_together(2).seen(found)
    assert seen.verified_together(2).seen(trace(step(drafted={"a": 1, "b": 1})))


def test_who_waits_while_others_draft_must_come_to_an_end():
    witness = seen.waits_while_drafting()
    waits = step("a", drafted={"a": 3}, a=Stage.DECODE, b=Stage.QUEUED)
    assert witness.seen(trace(waits, step(ends="b")))
    assert not witness.seen(trace(waits, step("b")))
    assert not witness.seen(trace(step("a", a=Stage.DECODE, b=Stage.QUEUED), step(ends="b")))
