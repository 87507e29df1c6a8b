"""The marathon is long, many and wide; what counts wrong late, or for many, is found by it."""

import dataclasses
from collections import Counter

import msgspec
import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.core.trace import FinishReason
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.workloads.marathon import MARATHON


@pytest.fixture(scope="module")
def toy():
    return subject()


def made(toy, engine=ContinuousBatching, seed=0, **facts):
    brief = dataclasses.replace(brief_for(toy, engine, seed), **facts)
    return {schedule.name: schedule for schedule in MARATHON.make(brief)}


def test_equal_seeds_make_equal_marathons_and_others_make_others(toy):
    assert made(toy) == made(toy)
    assert made(toy) != made(toy, seed=1)


@pytest.mark.parametrize("longest", [None, 256, 2048])
def test_no_two_rows_are_alike_and_all_fit(toy, longest):
    for schedule in made(toy, longest=longest).values():
        prompts = [request.prompt for request in schedule.requests]
        assert len(set(prompts)) == len(prompts)
        most = max(len(r.prompt) + r.max_tokens for r in schedule.requests)
        assert longest is None or most <= longest


def test_four_prompts_differ_in_one_token(toy):
    by_length = Counter(len(request.prompt) for request in made(toy)["many"].requests)
    length = 24
    same = [r.prompt for r in made(toy)["many"].requests if len(r.prompt) == length]
    pairs = [(a, b) for a in same for b in same if a != b]
    differ = [[i for i in range(length) if a[i] != b[i]] for a, b in pairs]
    assert by_length[length] >= 4
    assert {(length - 1,), (0,), (length // 2,)} <= {tuple(places) for places in differ}


def test_late_requests_are_removed_too(toy):
    schedule = made(toy)["many"]
    number = {request.request_id: at for at, request in enumerate(schedule.requests)}
    removed = {number[name] for name in schedule.removed_ids}
    assert min(removed) < 40
    assert len([at for at in removed if 64 < at < 100]) > 4
    assert len([at for at in removed if at > 100]) > 4


def test_some_rows_of_the_second_half_have_samplers_of_their_own(toy):
    has = [request.sampler is not None for request in made(toy)["many"].requests]
    assert not any(has[:60])
    assert 20 < sum(has[64:]) < len(has[64:]) - 10


class Of16(ContinuousBatching):
    """With 17 rows and more, those from the 17th on get the logits of the first ones."""

    def forward(self, rows, length):
        logits = super().forward(rows, length)
        return [logits[row % 16] for row in range(len(logits))]


class SamplersBy64(ContinuousBatching):
    """Keeps choosers by the request's number, of which it knows 64."""

    def __init__(self, model, options):
        super().__init__(model, options)
        self.samplers = []

    def row(self, submission):
        self.samplers.append(submission.request.sampler)
        old = self.samplers[(len(self.samplers) - 1) % 64]
        request = msgspec.structs.replace(submission.request, sampler=old)
        return super().row(dataclasses.replace(submission, request=request))


class RemovesTheFirst100(ContinuousBatching):
    """Requests that come late cannot be cancelled."""

    number = 0

    def insert(self, submissions):
        super().insert(submissions)
        self.late = {*getattr(self, "late", ())}
        for submission in submissions:
            self.number += 1
            if self.number > 100:
                self.late.add(submission.request.request_id)

    def remove(self, request_ids):
        super().remove([name for name in request_ids if name not in self.late])


class ThreeStops(ContinuousBatching):
    """The fourth stop sequence of a row is lost, and those after it."""

    def row(self, submission):
        request = msgspec.structs.replace(submission.request, stop=submission.request.stop[:3])
        return super().row(dataclasses.replace(submission, request=request))


class MatchesAnew(ContinuousBatching):
    """What a row has produced is forgotten after 32 tokens, when stop sequences are matched."""

    def reason(self, row):
        begun = len(row.produced) // 33 * 32
        whole, row.produced = row.produced, row.produced[begun:]
        stopped = super().reason(row)
        row.produced = whole
        return stopped if stopped is FinishReason.STOP else self.at_limit(row)

    def at_limit(self, row):
        return FinishReason.LENGTH if len(row.produced) == row.request.max_tokens else None


class TakesTwinsForOne(ContinuousBatching):
    """Prompts of one length that begin with the same tokens are one prompt."""

    def __init__(self, model, options):
        super().__init__(model, options)
        self.prompts = {}

    def row(self, submission):
        row = super().row(submission)
        prompt = submission.request.prompt
        if len(prompt) > 8:
            row.todo = list(self.prompts.setdefault((len(prompt), prompt[:8]), prompt))
        return row


class CountsTo512(ContinuousBatching):
    """After 512 steps each row that decodes is one position further on than it is."""

    steps = 0

    def step(self):
        self.steps += 1
        return super().step()

    def offsets(self, rows):
        return [offset + (self.steps > 512) for offset in super().offsets(rows)]


class CountsTo2048(ContinuousBatching):
    """Counts positions in half precision."""

    def offsets(self, rows):
        return [min(offset, 2048) for offset in super().offsets(rows)]


WRONG = (
    Of16,
    SamplersBy64,
    RemovesTheFirst100,
    ThreeStops,
    MatchesAnew,
    TakesTwinsForOne,
    CountsTo512,
    CountsTo2048,
)


@pytest.mark.parametrize("engine", WRONG, ids=lambda engine: engine.__name__)
def test_what_goes_wrong_late_or_for_many_is_found(toy, engine):
    outcome = judge_batched(toy, engine, MARATHON, list(made(toy, engine).values()))
    assert outcome.verdict in (Verdict.DIVERGED, Verdict.PROTOCOL)


def test_right_rows_are_exact(toy):
    outcome = judge_batched(toy, ContinuousBatching, MARATHON, list(made(toy).values()))
    assert (outcome.verdict, outcome.findings) == (Verdict.EXACT, ())
