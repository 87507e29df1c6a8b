"""Rows that draw at random are compared with single streams at their own tokens."""

import dataclasses

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from miniatures.library import ToyLibrary, subject
from miniatures.right import ContinuousBatching
from miniatures.wrong import RoundsOtherwise

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Schedule
from conformance.core.token_choice import RANDOM, Processor, Sampler
from conformance.core.trace import FinishReason, Mode
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.judging.playing import play_schedule
from conformance.scenarios import LADDER
from conformance.scenarios.build import text_request, together

(SCENARIO,) = (scenario for scenario in LADDER if scenario.name == "distributions")


class PassesOtherwise(ToyLibrary):
    """One pass over all tokens is not what the single stream gives."""

    def teacher_forced(self, *args, **options):
        return super().teacher_forced(*args, **options) + np.float32(0.5)


class EndsEarly(ContinuousBatching):
    def reason(self, row):
        ends = row.name == "r1" and len(row.produced) == 3
        return super().reason(row) or ("length" if ends else None)


class MovesOneRow(ContinuousBatching):
    def logprobs(self, row, scores):
        moved = np.float32(0.01 * (row.name == "r2" and len(row.produced) == 2))
        return super().logprobs(row, scores) + moved


class Draws(ContinuousBatching):
    """Begins with a number of mlx's own."""

    def __init__(self, model, options):
        super().__init__(model, options)
        self.first = int(mx.random.randint(0, 20, (1,)).item())

    def decode_step(self):
        self.model.drawn = self.first
        return super().decode_step()


def schedule(toy):
    brief = brief_for(toy, ContinuousBatching, 0)
    sampler = Sampler(RANDOM, {"temp": 1.0})
    rows = [text_request(brief, f"r{n}", 5, sampler=sampler) for n in range(4)]
    return Schedule("four", (together(*rows),))


def mixed(toy):
    """Rows that draw beside a plain one, with a processor and with stop sequences."""
    plain, *drawing = schedule(toy).requests
    brief = brief_for(toy, ContinuousBatching, 0)
    greedy = msgspec.structs.replace(plain, sampler=None)
    stop = (brief.solo(greedy, EngineOptions()).tokens[1:2],)
    biased = Processor("library", {"logit_bias": {"3": 4.0}})
    rows = [
        msgspec.structs.replace(greedy, stop=stop),
        msgspec.structs.replace(drawing[0], processors=(biased,)),
        msgspec.structs.replace(drawing[1], stop=tuple((token,) for token in range(*brief.tokens))),
        *drawing[2:],
    ]
    return Schedule("mixed", (together(*rows),))


def judged_mixed(engine, toy):
    found = judge_batched(toy, engine, SCENARIO, [mixed(toy)], left_out=("*",)).findings
    return {(finding.check, finding.request_id) for finding in found if finding.request_id}


class ForgetsStops(ContinuousBatching):
    def reason(self, row):
        return FinishReason.LENGTH if len(row.produced) == row.request.max_tokens else None


class ForgetsProcessors(ContinuousBatching):
    def insert(self, submissions):
        super().insert([self.without(s) for s in submissions])

    def without(self, submission):
        request = msgspec.structs.replace(submission.request, processors=())
        return dataclasses.replace(submission, request=request)


class ChangesPlainRows(ContinuousBatching):
    def logprobs(self, row, scores):
        return (
            np.roll(super().logprobs(row, scores), 1)
            if row.name == "r0"
            else super().logprobs(row, scores)
        )


def judged(engine, toy):
    found = judge_batched(toy, engine, SCENARIO, [schedule(toy)], left_out=("*",)).findings
    return {(finding.check, finding.request_id) for finding in found if finding.request_id}


def test_one_free_run_with_each_rows_own_tokens():
    toy = subject()
    played = play_schedule(toy, ContinuousBatching, schedule(toy))
    assert [trace.mode for trace in played.traces] == [Mode.FREE]
    tokens = {name: stream.tokens for name, stream in played.want.items()}
    assert tokens == {name: played.traces[0].stream(name).tokens for name in tokens}
    assert len(set(tokens.values())) > 1


@pytest.mark.parametrize("library", [ToyLibrary, PassesOtherwise])
@pytest.mark.parametrize("engine", [ContinuousBatching, RoundsOtherwise])
def test_a_right_engine_is_right_even_if_one_pass_is_not_the_single_stream(library, engine):
    assert judged(engine, subject(library())) == set()


@pytest.mark.parametrize(
    ("engine", "found"), [(EndsEarly, ("protocol", "r1")), (MovesOneRow, ("forced", "r2"))]
)
def test_a_wrong_row_is_found(engine, found):
    assert judged(engine, subject()) == {found}


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (ContinuousBatching, set()),
        (ForgetsStops, {("protocol", "r0"), ("protocol", "r2")}),
        (ForgetsProcessors, {("forced", "r1")}),
        (ChangesPlainRows, {("forced", "r0"), ("free", "r0")}),
    ],
)
def test_plain_rows_beside_have_single_streams_and_all_have_processors_and_stops(engine, found):
    assert judged_mixed(engine, subject()) == found


def test_the_random_numbers_are_those_of_the_cases_seed():
    drawn = []
    for seed in (0, 0, 1, 2):
        toy = subject(seed=seed)
        play_schedule(toy, Draws, schedule(toy))
        drawn.append(toy.model.drawn)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1
