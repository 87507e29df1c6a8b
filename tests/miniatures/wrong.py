"""Engines with one error each, named after it, and what each scenario must detect of it."""

import itertools
import threading

import mlx.core as mx
import numpy as np

from conformance.core.errors import Unsupported
from conformance.core.grammar import Grammar
from conformance.core.trace import FinishReason, StepOutput, TokenEvent
from miniatures.right import ContinuousBatching

_RUNS = itertools.count(1)


class LosesFirstToken(ContinuousBatching):
    """A request that joins while others decode does not emit its first token."""

    def start_decoding(self, processed):
        before = list(self.decode)
        super().start_decoding(processed)
        if before:
            self.muted = getattr(self, "muted", set()) | {
                row.name for row in self.decode if row not in before
            }

    def emit(self, row, token, logprobs, reason):
        muted = len(row.produced) == 1 and row.name in getattr(self, "muted", ())
        return [] if muted else super().emit(row, token, logprobs, reason)


class RepeatsToken(ContinuousBatching):
    """The token before a row leaves is given out twice, for the rows that stay."""

    def leave(self, ended):
        self.again = bool(ended)
        super().leave(ended)

    def emit(self, row, token, logprobs, reason):
        events = super().emit(row, token, logprobs, reason)
        again, self.again = getattr(self, "again", False), False
        return events * 2 if again else events


class YieldsAfterFinish(ContinuousBatching):
    """A row that ended emits one more token while others go on."""

    def decode_step(self):
        held, self.held = getattr(self, "held", []), []
        return super().decode_step() + held

    def leave(self, ended):
        super().leave(ended)
        self.held = [TokenEvent(row.name, row.todo[0], np.zeros(32)) for row in ended]


class YieldsAfterRemoval(ContinuousBatching):
    """A row that was removed in decode gives out the token that was already computed."""

    def remove(self, request_ids):
        gone = [row for row in self.decode if row.name in request_ids]
        self.held = [TokenEvent(row.name, row.todo[0], np.zeros(32)) for row in gone]
        super().remove(request_ids)

    def step(self):
        held, self.held = getattr(self, "held", []), []
        output = super().step()
        return StepOutput((*held, *output.events), output.processed)


class CallsEveryEndStop(ContinuousBatching):
    """A request that ends by ``max_tokens`` reports a stop sequence."""

    def reason(self, row):
        return FinishReason.STOP if super().reason(row) else None


class YieldsForAStranger(ContinuousBatching):
    """After a removal the next token is given to an id that nobody has."""

    def remove(self, request_ids):
        super().remove(request_ids)
        self.leaked = True

    def emit(self, row, token, logprobs, reason):
        leaked, self.leaked = getattr(self, "leaked", False), False
        extra = [TokenEvent("unknown uid 7", token, logprobs)] if leaked else []
        return super().emit(row, token, logprobs, reason) + extra


class HidesLogprobs(ContinuousBatching):
    """Rows beside the first come without logprobs."""

    def emit(self, row, token, logprobs, reason):
        if self.rows().get(row.name, 0) == 0:
            return super().emit(row, token, logprobs, reason)
        return [TokenEvent(row.name, token, None, None, reason)]


class AttendsToPadding(ContinuousBatching):
    """Padded columns of a prompt are taken for tokens."""

    def feed(self, row, piece, *, padding):
        row.fed += [0] * padding + piece
        row.padding = getattr(row, "padding", 0) + padding

    def offsets(self, rows):
        return [len(row.fed) - getattr(row, "padding", 0) for row in rows]


class NanInPadding(ContinuousBatching):
    """A row that was padded has NaN in the mean over its padding."""

    def feed(self, row, piece, *, padding):
        super().feed(row, piece, padding=padding)
        row.padded = padding > 0

    def logprobs(self, row, scores):
        logprobs = super().logprobs(row, scores)
        if getattr(row, "padded", False):
            logprobs[0] = np.nan
        return logprobs


class RowZeroOffset(ContinuousBatching):
    """All rows are at the position of the first one."""

    def offsets(self, rows):
        return [len(rows[0].fed)] * len(rows)


class CountsColumnsAlone(ContinuousBatching):
    """The only row left before its padding is done takes its column as its position."""

    def remove(self, request_ids):
        before = list(self.prefill)
        super().remove(request_ids)
        if len(self.prefill) == 1:
            (left,) = self.prefill
            columns = max(len(row.request.prompt) - len(row.fed) for row in before)
            self.shifts = {left.name: max(0, columns - len(left.request.prompt))}

    def offsets(self, rows):
        shifts = getattr(self, "shifts", {})
        return [len(row.fed) + shifts.get(row.name, 0) for row in rows]


class AnswersFirstRow(ContinuousBatching):
    """All rows get the numbers of the first."""

    def forward(self, rows, length):
        return super().forward(rows, length)[[0] * len(rows)]


class JoinsOneOff(ContinuousBatching):
    """A request that comes while others decode is one position off."""

    def insert(self, submissions):
        super().insert(submissions)
        if self.decode:
            for row in self.queue[-len(submissions) :]:
                row.shift = 1

    def offsets(self, rows):
        return [len(row.fed) + getattr(row, "shift", 0) for row in rows]


class WrongBeyondEightRows(ContinuousBatching):
    """The kernel for more than eight rows forgets the last one."""

    def forward(self, rows, length):
        logits = super().forward(rows, length)
        if len(rows) > 8:
            logits[-1] = logits[0]
        return logits


class NeverEndsAtFirstToken(ContinuousBatching):
    """Looks at the end of a request only from its second token on."""

    def reason(self, row):
        if len(row.produced) == 1:
            return None
        late = len(row.produced) > row.request.max_tokens
        return FinishReason.LENGTH if late else super().reason(row)


class SwapsRowsAfterFilter(ContinuousBatching):
    """After a row left, two of the rows that stay have each other's cache."""

    def leave(self, ended):
        super().leave(ended)
        if ended and len(self.decode) > 1:
            first, second = self.decode[:2]
            first.fed, second.fed = second.fed, first.fed


class MixesScales(ContinuousBatching):
    """Where keys and values are quantized, rows that stay are read by the scale of one gone."""

    scale = 1.0

    def leave(self, ended):
        super().leave(ended)
        if ended and self.options.kv is not None:
            self.scale = 1.5

    def logprobs(self, row, scores):
        return super().logprobs(row, (scores * self.scale).astype(np.float32))


class SwapsImages(ContinuousBatching):
    """Two prompts that are admitted together get each other's images, if of one size."""

    def admit(self):
        before = list(self.prefill)
        super().admit()
        shown = [row for row in self.prefill if row not in before and row.request.media]
        for one, two in itertools.pairwise(shown):
            mine, theirs = (row.request.media[0].span for row in (one, two))
            if mine[1] - mine[0] == theirs[1] - theirs[0]:
                here, there = slice(*mine), slice(*theirs)
                one.todo[here], two.todo[there] = two.todo[there], one.todo[here]


class CutsImages(ContinuousBatching):
    """A piece of a prompt that begins within an image lacks its first token."""

    def feed(self, row, piece, *, padding):
        at = len(row.fed)
        within = any(media.span[0] < at < media.span[1] for media in row.request.media)
        row.fed += piece[1:] if within else piece


class ImagesShiftJoins(ContinuousBatching):
    """What comes while an image decodes is one position off."""

    def insert(self, submissions):
        super().insert(submissions)
        if any(row.request.media for row in self.decode):
            for row in self.queue[-len(submissions) :]:
                row.shift = 1

    def offsets(self, rows):
        return [len(row.fed) + getattr(row, "shift", 0) for row in rows]


class RemembersText(ContinuousBatching):
    """When text was the last that it had to do, what comes next is one position off."""

    def leave(self, ended):
        super().leave(ended)
        if ended and not (self.decode or self.prefill or self.queue):
            self.shift = int(not ended[-1].request.media)

    def insert(self, submissions):
        super().insert(submissions)
        for row in self.queue:
            row.shift = getattr(self, "shift", 0)
        self.shift = 0

    def offsets(self, rows):
        return [len(row.fed) + row.shift for row in rows]


class KeepsCache(ContinuousBatching):
    """The cache of a row that was removed from a prompt batch is never given back."""

    kept = 0

    def remove(self, request_ids):
        self.kept += sum(len(row.fed) for row in self.prefill if row.name in request_ids)
        super().remove(request_ids)

    def cache_bytes(self):
        return super().cache_bytes() + 4 * self.kept


class InheritsSlotState(ContinuousBatching):
    """A request that takes a slot goes on from the last token of the row that had it."""

    def leave(self, ended):
        super().leave(ended)
        self.left = [row.todo[0] for row in ended]

    def admit(self):
        waiting = list(self.queue)
        super().admit()
        left, self.left = getattr(self, "left", []), []
        for row, token in zip((r for r in waiting if r not in self.queue), left, strict=False):
            row.fed.insert(0, token)


class ComputesGhostRows(ContinuousBatching):
    """Rows that ended are computed on while others decode."""

    def forward(self, rows, length):
        gone = len(self.done) if length == 1 else 0
        logits = super().forward([*rows, *rows[:1] * gone], length)
        return logits[: len(rows)]


class LosesTokenBetweenPieces(ContinuousBatching):
    """Each piece of a prompt but the first lacks its first token."""

    def feed(self, row, piece, *, padding):
        row.fed += piece[1:] if row.fed else piece


class ForgetsBound(ContinuousBatching):
    """Among others a row sees more than the bounded cache holds."""

    def forward(self, rows, length):
        if len(rows) == 1:
            return super().forward(rows, length)
        fed = [row.fed for row in rows]
        return self.model(fed, length=length, offsets=self.offsets(rows))


class SharesExtractedCache(ContinuousBatching):
    """Two requests that go on from one cache write into the same one."""

    def row(self, submission):
        row = super().row(submission)
        if submission.prefix is not None:
            row.fed = submission.prefix
        return row

    def extract(self, request_id):
        return self.done[request_id] if request_id in self.done else super().extract(request_id)


class KeepsFirstSampler(ContinuousBatching):
    """All rows use the sampler of the first."""

    def decode_step(self):
        for row in self.decode:
            row.chooser.sampler = self.decode[0].chooser.sampler
        return super().decode_step()


class SharesSeeds(ContinuousBatching):
    """Rows with samplers of their own all draw from the seed of the first of them."""

    def decode_step(self):
        choosers = [row.chooser for row in self.decode]
        seeded = [c for c in choosers if c.sampler and c.sampler.kind == "seeded"]
        for chooser in seeded:
            chooser.sampler = seeded[0].sampler
        return super().decode_step()


class ShiftsProcessors(ContinuousBatching):
    """When a request joins, the rows' lists of processors move by one row."""

    def start_decoding(self, processed):
        before = list(self.decode)
        super().start_decoding(processed)
        if before and len(self.decode) > len(before):
            lists = [row.chooser.processors for row in self.decode]
            for row, processors in zip(self.decode, lists[1:] + lists[:1], strict=True):
                row.chooser.processors = processors


class MovesGrammarsLate(ContinuousBatching):
    """A grammar gets its row's tokens one step late."""

    def logprobs(self, row, scores):
        bound = any(isinstance(item, Grammar) for item in row.chooser.processors)
        late = bound and bool(row.produced)
        return row.chooser.logprobs(row.fed[:-1] if late else row.fed, scores)


class StopsLate(ContinuousBatching):
    """A stop sequence is only seen one token after it is complete."""

    def reason(self, row):
        stops = row.request.stop
        if any(tuple(row.produced[-len(stop) - 1 : -1]) == stop for stop in stops):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(row.produced) == row.request.max_tokens else None


class StopsWithHalf(ContinuousBatching):
    """The first token of a stop sequence ends the row."""

    def reason(self, row):
        if row.produced[-1] in {stop[0] for stop in row.request.stop if stop}:
            return FinishReason.STOP
        return super().reason(row)


class FollowsOneSequence(ContinuousBatching):
    """While a stop sequence is half complete, no other one is looked for."""

    def reason(self, row):
        begun = matched = None
        for token in row.produced:
            if begun is None or token != begun[matched]:
                begun = next((stop for stop in row.request.stop if stop[:1] == (token,)), None)
                matched = 0
            matched = None if begun is None else matched + 1
            if begun is not None and matched == len(begun):
                return FinishReason.STOP
        return FinishReason.LENGTH if len(row.produced) == row.request.max_tokens else None


class AcceptsInvalid(ContinuousBatching):
    """Invalid calls are accepted without an error."""

    def refuse(self, kind): ...


class RefusesUnclearly(ContinuousBatching):
    """Invalid calls hit an index deep inside."""

    def refuse(self, kind):
        raise IndexError("list index out of range")


class HalfAppliesInvalid(ContinuousBatching):
    """Invalid calls are refused after a part of them was done."""

    refused = 0

    def refuse(self, kind):
        self.refused += 1
        super().refuse(kind)

    def state(self):
        return {"uid counter": self.refused}


class WaitsForWholePrefill(ContinuousBatching):
    """No request is admitted until there are slots for as many as may be prefilled together."""

    def admit(self):
        free = self.options.completion_batch_size - len(self.decode) - len(self.prefill)
        if free >= self.options.prefill_batch_size:
            super().admit()


class CrashesOnJoin(ContinuousBatching):
    """A request that joins rows at work ends the run."""

    def start_decoding(self, processed):
        if self.decode and any(len(row.todo) == 1 for row in self.prefill):
            raise RuntimeError("shapes (3,1) and (2,1) cannot be broadcast")
        super().start_decoding(processed)


class SaysUnsupported(ContinuousBatching):
    """Refuses a bounded cache with a message of its own."""

    def __init__(self, model, options):
        super().__init__(model, options)
        if options.max_kv_size:
            raise Unsupported("bounded caches are not supported in a batch")


class NeverEnds(ContinuousBatching):
    """Requests that wait for a slot wait for ever."""

    def admit(self):
        if not self.done:
            super().admit()


class CrashesOnOtherThread(ContinuousBatching):
    """Only works where its model was loaded."""

    def step(self):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("There is no Stream(gpu, 1) in current thread.")
        return super().step()


class ReadsUnwrittenMemory(ContinuousBatching):
    """Among others a row's numbers are other ones in each run."""

    def __init__(self, model, options):
        super().__init__(model, options)
        self.rubbish = np.float32(1e-3 * next(_RUNS))

    def logprobs(self, row, scores):
        moved = scores + self.rubbish * (np.arange(32) == 5) * (len(self.decode) > 1)
        return super().logprobs(row, moved)


class DriftsALittle(ContinuousBatching):
    """In a batch all logprobs are off by a thousandth, which no argmax shows."""

    def logprobs(self, row, scores):
        return super().logprobs(row, scores) - np.float32(1e-3 * (len(self.decode) > 1))


class RoundsOtherwise(ContinuousBatching):
    """In a batch the last bit is rounded otherwise: not wrong, and ties may fall otherwise."""

    def logprobs(self, row, scores):
        up = 2.0**-22 * (np.arange(32) % 2 - 0.5) * (len(self.decode) > 1)
        return super().logprobs(row, (scores * (1 + up)).astype(np.float32))


class KeepsArraysOfAllSteps(ContinuousBatching):
    """What a step has computed is put into a list, and stays there."""

    def step(self):
        self.past = [*getattr(self, "past", []), mx.array([len(getattr(self, "past", []))])]
        return super().step()


WRONG = (
    KeepsArraysOfAllSteps,
    LosesFirstToken,
    RepeatsToken,
    YieldsAfterFinish,
    YieldsAfterRemoval,
    CallsEveryEndStop,
    YieldsForAStranger,
    HidesLogprobs,
    AttendsToPadding,
    NanInPadding,
    RowZeroOffset,
    CountsColumnsAlone,
    AnswersFirstRow,
    JoinsOneOff,
    WrongBeyondEightRows,
    NeverEndsAtFirstToken,
    SwapsRowsAfterFilter,
    MixesScales,
    SwapsImages,
    CutsImages,
    ImagesShiftJoins,
    RemembersText,
    KeepsCache,
    InheritsSlotState,
    ComputesGhostRows,
    LosesTokenBetweenPieces,
    ForgetsBound,
    SharesExtractedCache,
    KeepsFirstSampler,
    SharesSeeds,
    ShiftsProcessors,
    MovesGrammarsLate,
    StopsLate,
    StopsWithHalf,
    FollowsOneSequence,
    AcceptsInvalid,
    RefusesUnclearly,
    HalfAppliesInvalid,
    WaitsForWholePrefill,
    CrashesOnJoin,
    SaysUnsupported,
    NeverEnds,
    CrashesOnOtherThread,
    ReadsUnwrittenMemory,
    DriftsALittle,
)
