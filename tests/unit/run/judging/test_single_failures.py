"""A single stream that fails in pieces is replaced by that of the whole prompt, and said."""

import msgspec
import pytest
from miniatures.library import ToyLibrary, subject
from miniatures.right import ContinuousBatching
from miniatures.wrong import DriftsALittle

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Schedule
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.judging.single_failures import attempt
from conformance.scenarios import LADDER
from conformance.scenarios.build import text_request, together


class WholePrompts(ToyLibrary):
    """Its single stream takes no prompt in pieces."""

    def single_stream(self, model, request, *, options, **more):
        if len(request.prompt) - 1 > options.prefill_step_size:
            raise ValueError("no pieces, please")
        return super().single_stream(model, request, options=options, **more)


class NoPrompts(ToyLibrary):
    """Its single stream takes no long prompt at all."""

    def single_stream(self, model, request, **more):
        if len(request.prompt) > 2:
            raise ValueError("no prompts, please")
        return super().single_stream(model, request, **more)


def in_pieces(toy, size=4):
    brief = brief_for(toy, ContinuousBatching, 0)
    rows = together(text_request(brief, "a", 5), text_request(brief, "b", 11))
    options = EngineOptions(prefill_step_size=size)
    return Schedule("pieces", (rows,), options=options)


def judged(library, engine, size=4):
    toy = subject(library)
    chunked = next(scenario for scenario in LADDER if scenario.name == "chunked")
    return judge_batched(toy, engine, chunked, [in_pieces(toy, size)])


def test_a_right_batch_has_the_failure_of_its_single_stream_alone():
    found = judged(WholePrompts(), ContinuousBatching)
    (finding,) = [f for f in found.findings if f.verdict is not Verdict.VACUOUS]
    assert finding.verdict is Verdict.ORACLE
    assert finding.got == "ValueError: no pieces, please"
    assert finding.what.endswith("compared with single streams of whole prompts")
    assert [s.verdict for s in found.schedules] == [Verdict.ORACLE]


def test_a_wrong_batch_is_seen_beside_it():
    found = judged(WholePrompts(), DriftsALittle)
    assert {Verdict.ORACLE, Verdict.DRIFT} <= {f.verdict for f in found.findings}


def test_whole_prompts_that_fail_too_are_what_they_were():
    with pytest.raises(ValueError, match="no prompts, please"):
        judged(NoPrompts(), ContinuousBatching)


def test_nothing_is_tried_again_where_no_prompt_is_cut():
    asked = []

    def play(uncut):
        asked.append(uncut)
        raise ValueError("broken")

    whole = in_pieces(subject(), size=10)
    assert attempt(whole, play).finding.verdict is Verdict.CRASH
    assert asked == [False]
    shorter = msgspec.structs.replace(whole, options=EngineOptions(prefill_step_size=9))
    attempt(shorter, play)
    assert asked == [False, False, True]


def test_the_machines_own_problems_are_no_verdict():
    def play(uncut):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        attempt(in_pieces(subject()), play)
