"""The marathon is long, many and wide; what counts wrong late, or for many, is found by it."""

import dataclasses
from collections import Counter

import msgspec
import pytest
from miniatures.library import subject
from miniatures.model import normalise
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


def of_size(schedule):
    """All but the tiny requests that come first."""
    return [request for request in schedule.requests if not request.request_id.startswith("t")]


@pytest.mark.parametrize("longest", [None, 256, 2048])
def test_no_two_rows_are_alike_and_all_fit(toy, longest):
    for schedule in made(toy, longest=longest).values():
        prompts = [request.prompt for request in of_size(schedule)]
        apart = 37 if schedule.name == "crowd" else len(prompts)
        assert len(set(prompts)) == apart, "of a crowd, no power of two parts rows that are alike"
        assert prompts == [prompts[at % apart] for at in range(len(prompts))]
        most = max(len(r.prompt) + r.max_tokens for r in schedule.requests)
        assert longest is None or most <= longest


def test_five_prompts_differ_from_another_in_one_token_or_in_their_order(toy):
    length = 24
    same = [r.prompt for r in of_size(made(toy)["many"]) if len(r.prompt) == length]
    differ = {
        tuple(i for i in range(length) if one[i] != other[i]) for one in same for other in same
    }
    assert {(length - 1,), (0,), (2,), (length // 2,)} <= differ
    assert any(one != other and sorted(one) == sorted(other) for one in same for other in same)


def test_all_but_tiny_requests_have_large_numbers(toy):
    schedule = made(toy)["many"]
    assert schedule.requests.index(of_size(schedule)[0]) > 256


def test_late_requests_are_removed_too(toy):
    schedule = made(toy)["many"]
    number = {request.request_id: at for at, request in enumerate(of_size(schedule))}
    removed = {number[name] for name in schedule.removed_ids}
    assert min(removed) < 40
    assert len([at for at in removed if 64 < at < 100]) > 4
    assert len([at for at in removed if at > 100]) > 4


def test_some_rows_of_the_second_half_choose_in_ways_of_their_own(toy):
    schedule = made(toy)["many"]
    shared = schedule.options.sampler
    has = [request.sampler != shared for request in of_size(schedule)]
    assert not any(has[:60])
    assert 20 < sum(has[64:]) < len(has[64:]) - 10
    processed = [bool(request.processors) for request in of_size(schedule)]
    assert not any(processed[:60])
    assert 20 < sum(processed[64:]) < len(has[64:]) - 10


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


class RemovesTheFirst256(ContinuousBatching):
    """Requests that come late cannot be cancelled."""

    number = 0

    def insert(self, submissions):
        super().insert(submissions)
        self.late = {*getattr(self, "late", ())}
        for submission in submissions:
            self.number += 1
            if self.number > 256:
                self.late.add(submission.request.request_id)

    def remove(self, request_ids):
        super().remove([name for name in request_ids if name not in self.late])


class RemovesTheFirst64(ContinuousBatching):
    """Of the requests that one call removes, those after the first 64 go on."""

    def remove(self, request_ids):
        super().remove(list(request_ids)[:64])


class LimitsOfTheFirst64(ContinuousBatching):
    """Of the requests that one call brings, those after the first 64 get the limits of these."""

    def insert(self, submissions):
        limits = [submission.request.max_tokens for submission in submissions]
        super().insert(
            dataclasses.replace(
                one, request=msgspec.structs.replace(one.request, max_tokens=limits[at % 64])
            )
            for at, one in enumerate(submissions)
        )


class TurnsPiece33(ContinuousBatching):
    """The 33rd piece of a prompt has its tokens in the other order."""

    def prefill_step(self, processed):
        self.pieces = getattr(self, "pieces", Counter())
        for row in self.prefill:
            self.pieces[row.name] += 1
            if self.pieces[row.name] == 33:
                length = min(self.piece(), len(row.todo) - 1)
                row.todo[:length] = row.todo[:length][::-1]
        super().prefill_step(processed)


class ProcessesTheFirst256(ContinuousBatching):
    """Requests that come late have no processors."""

    number = 0

    def row(self, submission):
        self.number += 1
        given = submission.request.processors if self.number <= 256 else ()
        request = msgspec.structs.replace(submission.request, processors=given)
        return super().row(dataclasses.replace(submission, request=request))


class SharesOfAllRows(ContinuousBatching):
    """The share that a token must have is one of the likeliest token's in all rows."""

    def forward(self, rows, length):
        logits = super().forward(rows, length)
        best = max(normalise(own).max() for own in logits)
        for row in rows:
            row.chooser.best = best
        return logits


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
            key = len(prompt), self.of(prompt)
            row.todo = list(self.prompts.setdefault(key, prompt))
        return row

    def of(self, prompt):
        return prompt[:8]


class TakesOrdersForOne(TakesTwinsForOne):
    """Prompts of one length and one sum are one prompt."""

    def of(self, prompt):
        return sum(prompt)


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
    RemovesTheFirst256,
    RemovesTheFirst64,
    LimitsOfTheFirst64,
    TurnsPiece33,
    ProcessesTheFirst256,
    SharesOfAllRows,
    ThreeStops,
    MatchesAnew,
    TakesTwinsForOne,
    TakesOrdersForOne,
    CountsTo512,
    CountsTo2048,
)


@pytest.mark.parametrize("engine", WRONG, ids=lambda engine: engine.__name__)
def test_what_goes_wrong_late_or_for_many_is_found(toy, engine):
    found = (Verdict.DIVERGED, Verdict.PROTOCOL)
    outcome = judge_batched(
        *(toy, engine, MARATHON, list(made(toy, engine).values())),
        until=lambda findings: any(finding.verdict in found for finding in findings),
    )
    assert outcome.verdict in found


def test_right_rows_are_exact(toy):
    outcome = judge_batched(toy, ContinuousBatching, MARATHON, list(made(toy).values()))
    assert (outcome.verdict, outcome.findings) == (Verdict.EXACT, ())
