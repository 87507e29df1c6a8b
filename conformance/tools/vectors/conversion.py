"""Converts a run of an external engine to what checks judge: records in, ``Play`` out.

A golden and a trace each list only their most likely tokens. A token that one side does not list is
at most as likely as the least likely one that it lists. If only one side lists a token, the other
gets the nearest value that this bound allows, so that only differences beyond it count. A token
that neither side lists is minus infinity on both, which is no difference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.checks import Play
from conformance.core.errors import VectorsError
from conformance.core.numerics import Envelope
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import Failure, Mode, Step, StepOutput, Stream, TokenEvent, Trace
from conformance.reference.oracle import cut
from conformance.tools.golden.format import Recorded
from conformance.tools.vectors.parsing import Arrived, End, Error, Finish, Removed, Run, Token
from conformance.tools.vectors.reading import Exported

Shown = Sequence[tuple[int, float | None]]


def row(shown: Shown, vocab: int) -> np.ndarray:
    """Logprobs float32 ``[vocab]``: minus infinity if not listed; ``None`` becomes NaN."""
    table = np.full(vocab, -np.inf, np.float32)
    for token, value in shown:
        table[token] = math.nan if value is None else value
    return table


def row_pair(want: Shown, got: Shown, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """One step's logprobs in the golden and in the trace.

    Shapes:
        both results float32 ``[vocab]``, like ``row``, except for tokens that only one side lists.
    """
    theirs, mine = row(want, vocab), row(got, vocab)
    in_theirs, in_mine = np.zeros(vocab, bool), np.zeros(vocab, bool)
    in_theirs[[token for token, _ in want]] = True
    in_mine[[token for token, _ in got]] = True
    least = [_least(theirs), _least(mine)]
    only_theirs, only_mine = in_theirs & ~in_mine, in_mine & ~in_theirs
    pair = theirs.copy(), mine.copy()
    pair[0][only_mine] = np.fmin(mine[only_mine], least[0])
    pair[1][only_theirs] = np.fmin(theirs[only_theirs], least[1])
    return pair


def _least(table: np.ndarray) -> float:
    """The least finite logprob; infinity if there is none, since then there is no bound."""
    finite = table[np.isfinite(table)]
    return float(finite.min()) if finite.size else math.inf


# Logprobs [vocab] of a request's output token.
Rows = Mapping[tuple[str, int], np.ndarray]


def trace_of(run: Run, schedule: Schedule, rows: Rows) -> Trace:
    """The run as a trace of ``schedule``; each token is a step of its own.

    Events with a trigger need a record at a moment when they were due; otherwise the trace lists
    them as ``missed``.

    Raises:
        VectorsError: the run has requests that the schedule lacks, or tokens before the arrival;
            names file and line.
    """
    return _Converter(run, schedule, rows).trace()


class _Converter:
    """The state of the conversion."""

    def __init__(self, run: Run, schedule: Schedule, rows: Rows) -> None:
        self._run = run
        self._schedule = schedule
        self._rows = rows
        self._stages: dict[str, Stage] = {}
        self._produced: dict[str, int] = {}
        self._steps: list[Step] = []
        self._late: list[str] = []
        self._failure: Failure | None = None
        self._held: int | None = None
        self._arrivals: dict[str, Arrival] = {}
        self._removals = {name: item for item in schedule.removals for name in item.request_ids}
        for arrival in schedule.arrivals:
            names = _names(arrival)
            if arrival.when == Trigger():
                self._stages |= dict.fromkeys(names, Stage.QUEUED)
            else:
                self._arrivals |= dict.fromkeys(names, arrival)

    def trace(self) -> Trace:
        """All records as one trace."""
        for line in self._run.lines:
            record = line.record
            if isinstance(record, Token):
                self._token(line.where, record)
            elif isinstance(record, Finish):
                self._finish(line.where, record)
            elif isinstance(record, Arrived):
                self._arrived(line.where, record)
            elif isinstance(record, Removed):
                self._removed(line.where, record)
            elif isinstance(record, Error):
                self._failure = Failure(
                    record.type, record.message, record.where, record.doing, record.unsupported
                )
            elif isinstance(record, End):
                self._held = record.cache_bytes
        # A last step without events records the stages at the end.
        self._steps.append(Step(len(self._steps), dict(self._stages), StepOutput()))
        return Trace(
            self._schedule,
            Mode.FORCED if self._run.forced else Mode.FREE,
            tuple(self._steps),
            failure=self._failure,
            cache_bytes_at_end=self._held,
            missed=() if self._failure is not None else self._missed(),
        )

    def _missed(self) -> tuple[str, ...]:
        never: list[Arrival | Removal] = [*self._arrivals.values(), *self._removals.values()]
        return tuple(dict.fromkeys([*self._late, *(_described(item) for item in never)]))

    def _token(self, where: str, token: Token) -> None:
        name = token.request_id
        if name in self._arrivals:
            raise VectorsError(
                f"{where}: a token of {name!r} before its arrival: the schedule has it wait, so "
                "an 'arrived' record must come first"
            )
        event = TokenEvent(name, token.token, self._rows.get((name, token.step)))
        rows = {} if token.row is None else {name: token.row}
        output = StepOutput((event,))
        self._steps.append(Step(len(self._steps), dict(self._stages), output, rows=rows))
        if self._stages.get(name) is Stage.QUEUED:
            self._stages[name] = Stage.DECODE
        self._produced[name] = self._produced.get(name, 0) + 1

    def _finish(self, where: str, finish: Finish) -> None:
        """Add the finish reason to the request's last token, as adapters do."""
        name = finish.request_id
        self._check(where, name)
        for index in reversed(range(len(self._steps))):
            (event,) = self._steps[index].output.events
            if event.request_id == name:
                output = StepOutput((replace(event, finish_reason=finish.reason),))
                self._steps[index] = replace(self._steps[index], output=output)
                break
        if self._stages.get(name) is not Stage.REMOVED:
            self._stages[name] = Stage.FINISHED

    def _arrived(self, where: str, record: Arrived) -> None:
        for name in record.request_ids:
            self._check(where, name)
            arrival = self._arrivals.get(name)
            if arrival is not None:
                self._due(arrival)
        for name in record.request_ids:
            self._arrivals.pop(name, None)
            self._stages.setdefault(name, Stage.QUEUED)

    def _removed(self, where: str, record: Removed) -> None:
        for name in record.request_ids:
            self._check(where, name)
            if name not in self._removals:
                raise VectorsError(
                    f"{where}: schedule {self._schedule.name!r} does not remove {name!r}"
                )
            self._due(self._removals[name])
        for name in record.request_ids:
            self._removals.pop(name)
            self._stages[name] = Stage.REMOVED

    def _check(self, where: str, name: str) -> None:
        known = [request.request_id for request in self._schedule.requests]
        if name not in known:
            raise VectorsError(
                f"{where}: schedule {self._schedule.name!r} has no request {name!r}; it has "
                f"{', '.join(known)}"
            )

    def _due(self, item: Arrival | Removal) -> None:
        if not self._reached(item.when):
            self._late.append(f"{_described(item)}; it came at another moment")

    def _reached(self, when: Trigger) -> bool:
        """Whether the trigger has fired, as far as a trace shows: it has no progress of prompts."""
        if when.request_id is None:
            return True
        stage = self._stages.get(when.request_id)
        if when.stage is Stage.DECODE:
            return stage is Stage.DECODE and self._produced[when.request_id] >= when.count
        before = (Stage.QUEUED, Stage.PREFILL)
        return stage is when.stage or (when.stage in before and stage in before)


def _names(arrival: Arrival) -> tuple[str, ...]:
    return tuple(request.request_id for request in arrival.requests)


def _described(item: Arrival | Removal) -> str:
    arrival = isinstance(item, Arrival)
    names = _names(item) if isinstance(item, Arrival) else item.request_ids
    when = item.when
    moment = f"when {when.request_id} is in {when.stage} with {when.count} done"
    return f"{'arrival' if arrival else 'removal'} of {', '.join(names)} ({moment})"


def play_of(run: Run, exported: Exported, golden: Mapping[str, Recorded], vocab: int) -> Play:
    """The run as it is judged, with the goldens of its schedule as the expected output.

    Args:
        golden: of the family, by id.
        vocab: number of token ids.

    Raises:
        VectorsError: the run has requests that its schedule lacks, or tokens before the arrival;
            names file and line.
    """
    recorded = {name: golden[key] for name, key in exported.golden.items()}
    tables = _tables(run, recorded, vocab)
    got = {key: mine for key, (_, mine) in tables.items()}
    trace = trace_of(run, exported.schedule, got)
    want = {
        request.request_id: _want(request, recorded[request.request_id], tables, vocab)
        for request in exported.schedule.requests
    }
    noise = {name: _envelope(item) for name, item in recorded.items()}
    shows = any(isinstance(i.record, Token) and i.record.top is not None for i in run.lines)
    return Play(
        exported.schedule,
        (trace,),
        want,
        floor=noise.__getitem__,
        envelope=noise.__getitem__,
        wider=lambda name, _: [functools.partial(noise.__getitem__, name)],
        full_logprobs=shows,
        staged=False,
    )


# For each request and step: the golden's logprobs and the trace's, [vocab] each.
_Tables = dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]


def _tables(run: Run, recorded: Mapping[str, Recorded], vocab: int) -> _Tables:
    tables: _Tables = {}
    for line in run.lines:
        token = line.record
        if not isinstance(token, Token) or token.top is None:
            continue
        beyond = [token_id for token_id, _ in token.top if token_id >= vocab]
        if beyond:
            raise VectorsError(
                f"{line.where}: field 'top' has token {beyond[0]}, the vocabulary has {vocab}"
            )
        one = recorded.get(token.request_id)
        # Tokens after the golden's end are wrong, whatever their logprobs are.
        want = one.top[token.step] if one is not None and token.step < len(one.top) else token.top
        tables[token.request_id, token.step] = row_pair(want, token.top, vocab)
    return tables


def _want(request: Request, recorded: Recorded, tables: _Tables, vocab: int) -> Stream:
    rows = []
    for step, top in enumerate(recorded.top):
        pair = tables.get((request.request_id, step))
        rows.append(pair[0] if pair is not None else row(top, vocab))
    return cut(Stream(recorded.tokens, np.stack(rows)), request)


def _envelope(recorded: Recorded) -> Envelope:
    noise = np.array(recorded.noise, np.float32)
    return Envelope(noise, noise, float(noise.min()))
