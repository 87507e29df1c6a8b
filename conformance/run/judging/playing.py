"""Runs a schedule of a case, forced and free, and adds the oracle's streams."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from conformance.backend import random_state
from conformance.checks import Play
from conformance.checks.forced import measure
from conformance.checks.stability import same_bits
from conformance.core import numerics
from conformance.core.engine import Capability, Engine
from conformance.core.failures import failure_of
from conformance.core.numerics import Envelope
from conformance.core.rounds import Hints, hints_of
from conformance.core.schedule import Request, Schedule, Stage, Weigh, validate
from conformance.core.token_choice import Sampler
from conformance.core.trace import Failure, FinishReason, Stream, Trace
from conformance.reference.subject import Subject
from conformance.run.judging.drafts_alone import DraftsAlone
from conformance.run.judging.following import followed
from conformance.run.runner import Beside, play
from conformance.scenarios.pieces import readable


@dataclass(frozen=True)
class _Noise:
    """Noise of a schedule's requests, measured on first use and timed as a phase of its own.

    For streams of the ``engine`` itself, which have only tokens, it is the smallest noise. A
    difference that the typical noise of the rows measured so far covers in each step is rounding
    without a measurement of its own.
    """

    subject: Subject
    schedule: Schedule
    engine: Mapping[str, Stream]
    measured: dict[str, Envelope] = field(default_factory=dict)

    def envelope(self, name: str) -> Envelope:
        if name in self.engine:
            return self.subject.oracle.floor_envelope(self.engine[name], self.schedule.options)
        with self.subject.phases("noise"):
            return self.subject.oracle.envelope(
                self.schedule.request(name), self.schedule.options, self.schedule
            )

    def wider(self, name: str, steps: int) -> list[Callable[[], Envelope]]:
        if name in self.engine:
            return [functools.partial(self.envelope, name)]
        request = self.schedule.request(name)
        measures = self.subject.oracle.wider(
            request, self.schedule.options, self.schedule, steps=steps
        )
        stages: list[Callable[[], Envelope]] = [
            functools.partial(self._timed, name, measure) for measure in measures
        ]
        if name in self.measured:
            return stages
        typical = numerics.typical_envelope(request.max_tokens, list(self.measured.values()))
        return stages if typical is None else [lambda: typical, *stages]

    def _timed(self, name: str, measure: Callable[[], Envelope]) -> Envelope:
        with self.subject.phases("noise"):
            self.measured[name] = measure()
        return self.measured[name]


class _Wanted:
    """The single streams of a schedule's requests.

    Args:
        short: requests that are removed need no tokens that come later, until ``lengthen``.

    Attributes:
        own: the streams whose oracle is the engine itself.
        streams: all streams.
        tokens: their tokens.
    """

    def __init__(
        self,
        subject: Subject,
        engine: type[Engine],
        schedule: Schedule,
        *,
        short: bool,
    ) -> None:
        self._oracle, self._phases, self._schedule = subject.oracle, subject.phases, schedule
        with self._phases("single stream"):
            self.own = _engine_streams(subject, engine, schedule)
        self.streams: dict[str, Stream] = dict(self.own)
        self.tokens: dict[str, tuple[int, ...]] = {}
        self._floors: dict[str, Envelope] = {}
        self._fewer = _fewer(schedule) if short else {}
        self._decode()

    def lengthen(self, run: Trace | None = None) -> None:
        """Have all tokens of each request, as a forced run is fed; or if that run has as many."""
        fewer = self._fewer.items()
        if run is None or any(len(run.stream(name).tokens) >= most for name, most in fewer):
            self._fewer = {}
            self._decode()

    def floor(self, name: str) -> Envelope:
        """The smallest noise to assume for a request."""
        if name not in self._floors:
            options = self._schedule.options
            self._floors[name] = self._oracle.floor_envelope(self.streams[name], options)
        return self._floors[name]

    def _decode(self) -> None:
        schedule = self._schedule
        with self._phases("single stream"):
            for request in schedule.requests:
                name = request.request_id
                most = self._fewer.get(name, request.max_tokens)
                if name not in self.own:
                    needed = msgspec.structs.replace(request, max_tokens=most)
                    self.streams[name] = self._oracle.solo(needed, schedule.options, schedule)
        self.tokens.update((name, stream.tokens) for name, stream in self.streams.items())
        self._floors.clear()


def play_schedule(
    subject: Subject,
    engine: type[Engine],
    schedule: Schedule,
    *,
    once: bool = False,
    churn: bool = True,
    enough: Callable[[Play], bool] = lambda _: False,
    uncut: bool = False,
) -> Play:
    """Run the schedule forced and free, filling free memory with garbage between the runs.

    As long as the engine chooses the oracle's tokens, the forced and the free run are identical and
    must agree bit for bit. If they do not, the first is rerun. With a drafter both runs are free.
    If rows draw with the library's own random numbers, there is one free run: see ``followed``.

    Args:
        once: make only the free run if it gave the oracle's tokens and numbers, as forced it would.
        churn: fill free memory with garbage before the first run, too.
        enough: called after the first run; if it returns true, no other run is made.
        uncut: compare with single streams whose prompts are not prefilled in pieces.
    """
    validate(schedule)
    if any(request.random for request in schedule.requests):
        return followed(subject, engine, schedule, _run(subject, engine, schedule))
    single = _of_whole_prompts(schedule) if uncut else schedule
    # Which drafts are accepted depends on the model's own tokens, so these runs are never forced.
    drafting = schedule.options.drafting is not None
    served = Capability.SERVED in engine.capabilities
    wanted = _Wanted(subject, engine, single, short=once and not (drafting or served))
    want, forced = wanted.streams, wanted.tokens
    noise = _Noise(subject, single, wanted.own)
    engine.check(subject.model, schedule, forced)
    hints = {name: hints_of(stream, subject.family.tokens) for name, stream in want.items()}
    first_tokens = forced if Capability.FORCED in engine.capabilities and not drafting else None

    def run(tokens: Mapping[str, tuple[int, ...]] | None, *, churn: bool = True) -> Trace:
        given = hints if drafting else None
        return _run(subject, engine, schedule, forced=tokens, hints=given, churn=churn)

    drafted_alone = DraftsAlone(subject, engine, schedule, hints)

    def played(*traces: Trace) -> Play:
        return Play(
            schedule,
            traces,
            want,
            floor=wanted.floor,
            envelope=noise.envelope,
            wider=noise.wider,
            full_logprobs=Capability.LOGPROBS in engine.capabilities and not drafting,
            staged=Capability.STAGES in engine.capabilities,
            dtypes=_dtypes(subject, single, traces[0]),
            engine=engine.name,
            dtype=subject.oracle.dtype,
            same_calls=_on_cpu(),
            same_products=_same_products(subject.oracle.dtype),
            alone=_alone(subject, schedule),
            drafted_alone=drafted_alone,
            word=functools.partial(_word, subject, schedule),
            logits_dtype=functools.partial(_logits_dtype, subject, schedule),
            policy=_policy(subject, schedule, want) if traces[0].failure is None else None,
        )

    free = run(None, churn=churn) if once else None
    if free is not None:
        wanted.lengthen(free)
        only = played(free)
        # What a client of a server sees depends on timing: no two runs are the same.
        if served or not _complete(free) or _follows(only) or enough(only):
            return only
        wanted.lengthen()
    first = run(first_tokens, churn=churn or once)
    only = played(first)
    if not _complete(first) or enough(only):
        return only
    second = free or run(None)
    if second.failure is not None or same_bits(played(first, second), first, second):
        return played(first, second)
    return played(first, second, run(first_tokens))


def _run(
    subject: Subject,
    engine: type[Engine],
    schedule: Schedule,
    *,
    forced: Mapping[str, tuple[int, ...]] | None = None,
    hints: Mapping[str, Hints] | None = None,
    churn: bool = True,
) -> Trace:
    """One run, with the same random numbers each time."""
    with subject.phases("memory churn"):
        if churn:
            subject.library.churn()
    random_state.seed(subject.origin.seed if subject.origin is not None else 0)
    with subject.around(schedule.name), subject.phases("engine"):
        model = subject.model_for(engine)
        beside = [] if engine.own_processes else _beside(subject, schedule)
        return play(
            engine, model, schedule, meter=subject.meter, forced=forced, hints=hints, beside=beside
        )


def _beside(subject: Subject, schedule: Schedule) -> list[Beside]:
    """Models that decode by turns with the subject's.

    Each has the prompts of the subject's first prefill, so that what is kept by tokens and shapes
    without the model is taken for its own.
    """
    if not schedule.beside_models:
        return []
    first = schedule.arrivals[0].requests[: schedule.options.prefill_batch_size]
    found = []
    for family, model in subject.others():
        low, high = family.tokens
        rows = tuple(
            Request(
                request.request_id,
                tuple(low + (token - low) % (high - low) for token in request.prompt),
                _BESIDE,
                sampler=Sampler("rank", {"rank": 2}),
            )
            for request in first
        )
        found.append(Beside(model, rows))
    return found


# Tokens of a removed request's single stream that no run reaches.
_SPARE = 2
# Tokens that rows of other models have: few, as each costs a step of four models.
_BESIDE = 6
# Logprob of all other tokens if only the chosen one's is known: then no margin is small.
_UNLIKELY = -100.0


def _engine_streams(
    subject: Subject, engine: type[Engine], schedule: Schedule
) -> dict[str, Stream]:
    """Streams of requests that only the engine itself can decode alone; see ``Engine.alone``."""
    found = {}
    for request in schedule.requests:
        tokens = engine.alone(subject.model_for(engine), request, schedule.options)
        if tokens is not None:
            table = np.full((len(tokens), subject.family.vocab_size), _UNLIKELY, np.float32)
            table[range(len(tokens)), list(tokens)] = 0.0
            whole = len(tokens) >= request.max_tokens
            reason = FinishReason.LENGTH if whole else FinishReason.STOP
            found[request.request_id] = Stream(tokens, table, None, reason)
    return found


def _complete(trace: Trace) -> bool:
    return trace.failure is None and not trace.out_of_steps


def _follows(play: Play) -> bool:
    """Whether in the only run each request has the oracle's tokens and, up to noise, logprobs."""
    (trace,) = play.traces
    for name, stream in play.want.items():
        tokens = trace.stream(name).tokens
        if tokens != stream.tokens[: len(tokens)]:
            return False
        found = measure(play, trace, name)
        if found is not None and not found[0].within_noise:
            return False
    return True


# Tokens of two single streams: both make the same reads before the first token, which cancel.
_FEW, _MORE = 4, 20


def _on_cpu() -> bool:
    from conformance.backend.device import on_cpu  # noqa: PLC0415 - imports mlx

    return on_cpu()


def _same_products(dtype: str) -> bool:
    from conformance.backend.half_products import same_beside_others  # noqa: PLC0415 - as above

    return dtype != "float32" and same_beside_others(dtype)


def _alone(subject: Subject, schedule: Schedule) -> float | None:
    """Host reads in a decode step of the library's own single stream."""
    if schedule.weigh is not Weigh.READS:
        return None
    from conformance.backend.host_reads import host_reads  # noqa: PLC0415 - imports mlx

    counts = []
    for steps in (_FEW, _MORE):
        with subject.phases("single stream"), host_reads() as places:
            subject.library.single_stream(
                subject.model, schedule.requests[0], options=schedule.options, steps=steps
            )
        counts.append(len(places))
    return (counts[1] - counts[0]) / (_MORE - _FEW)


def _fewer(schedule: Schedule) -> dict[str, int]:
    """Of requests removed by another one's progress: more tokens than they have by then.

    Both have at most one token in each step.
    """
    arrived = {r.request_id: arrival for arrival in schedule.arrivals for r in arrival.requests}
    found = {}
    for removal in schedule.removals:
        when = removal.when
        for name in removal.request_ids if when.stage is Stage.DECODE else ():
            since = arrived[name].when
            before = since.count if since.request_id == when.request_id else 0
            most = when.count - before + _SPARE
            if when.request_id is not None and most < schedule.request(name).max_tokens:
                found[name] = most
    return found


def _of_whole_prompts(schedule: Schedule) -> Schedule:
    longest = max(len(request.prompt) for request in schedule.requests)
    options = msgspec.structs.replace(schedule.options, prefill_step_size=longest)
    return msgspec.structs.replace(schedule, options=options)


def _dtypes(
    subject: Subject, schedule: Schedule, trace: Trace
) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """The dtypes of the batch's caches to compare with, if any; not for quantized caches."""
    if schedule.options.kv is not None or not any(step.layers for step in trace.steps):
        return {}
    # A request that continues from a cache has no single stream, and the dtypes of any other.
    alone = {_kinds(r): r for r in reversed(schedule.requests) if r.continues is None}
    with subject.phases("single stream"):
        return {
            request.request_id: subject.oracle.dtypes(alone[_kinds(request)], schedule.options)
            for request in schedule.requests
            if _kinds(request) in alone
        }


def _kinds(request: Request) -> frozenset[str]:
    return frozenset(media.kind for media in request.media)


def _policy(
    subject: Subject, schedule: Schedule, want: Mapping[str, Stream]
) -> np.ndarray | Failure | None:
    """The library's own single stream, to compare with its quantized batch of one."""
    if schedule.options.kv is None or len(schedule.requests) > 1:
        return None
    (request,) = schedule.requests
    tokens = want[request.request_id].tokens
    try:
        with subject.phases("single stream"):
            return subject.library.policy_stream(
                subject.model, request, tokens, options=schedule.options
            )
    except Exception as error:  # noqa: BLE001 - the library's failure is the result
        return failure_of(
            error, "decoding one request in a single stream by the library's own policy"
        )


def _logits_dtype(subject: Subject, schedule: Schedule) -> str:
    """The dtype of the logits that processors are given in the library's own single stream."""
    request = min(schedule.requests, key=lambda r: (bool(r.media), len(r.prompt)))
    with subject.phases("single stream"):
        return subject.library.logits_dtype(subject.model, request, schedule.options)


def _word(subject: Subject, schedule: Schedule, token: int) -> str:
    """The text of a token, if it has one that a user would know."""
    own = next((text for text, known in schedule.options.words if known == token), "")
    if own and schedule.options.pieces:
        return readable(schedule.options.pieces, own)
    return own or subject.library.word(subject.model, token)
