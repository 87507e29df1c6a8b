"""A right play, written by hand so that a fault can be planted anywhere in it; no engine runs.

Requests ``a`` (5 tokens), ``b`` (3 tokens) and ``c``, which has 5 and is removed after 2. Step 0
prefills, step 1 gives all first tokens, and so on; two more steps in which nothing comes.
"""

from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np

from conformance.checks import Play
from conformance.core.counted import Counted
from conformance.core.numerics import Envelope, flat_envelope
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import (
    FinishReason,
    KeptCache,
    Mode,
    Step,
    StepOutput,
    Stream,
    TokenEvent,
    Trace,
)

VOCAB = 8
NOISE = 1e-5  # nats, at every step
REMOVED_AFTER = 2

SCHEDULE = Schedule(
    "by_hand",
    (Arrival((Request("a", (1, 2, 3), 5), Request("b", (4, 5), 3), Request("c", (6,), 5))),),
    (Removal(("c",), Trigger("c", Stage.DECODE, REMOVED_AFTER)),),
)


def stream(seed, steps, *, margins=None):
    """A single stream whose margins are 1 nat, or at a step the one in ``margins``."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(-6, -3, (steps, VOCAB))
    tokens = rng.permuted(np.arange(VOCAB))[:steps]
    for step, token in enumerate(tokens):
        logits[step, token] = 0.0
        logits[step, (token + 1) % VOCAB] = -(margins or {}).get(step, 1.0)
    logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return Stream(
        tuple(int(t) for t in tokens), logprobs.astype(np.float32), None, FinishReason.LENGTH
    )


@dataclass
class Moment:
    """A step that can still be changed."""

    stages: dict
    events: list = field(default_factory=list)
    forwards: list = field(default_factory=list)
    rows: dict = field(default_factory=dict)
    probes: list = field(default_factory=list)
    removed_from: dict = field(default_factory=dict)
    drafted: dict = field(default_factory=dict)
    proposed: dict = field(default_factory=dict)
    pending: int | None = None
    alive: object = None
    layers: tuple = ()
    stored: tuple = ()
    claims: tuple = ()
    pooled: tuple = ()
    reused: dict = field(default_factory=dict)
    processed: dict = field(default_factory=dict)


@dataclass
class Take:
    """A run that can still be changed."""

    schedule: Schedule
    mode: Mode
    moments: list[Moment]
    failure: object = None
    out_of_steps: bool = False
    held: int | None = 0
    kept: KeptCache | None = None
    left: tuple[dict[str, int], ...] = ()
    counted: Counted | None = None

    def event(self, name, index):
        """The moment of a request's token ``index``, and the place of its event there."""
        seen = [
            (moment, place)
            for moment in self.moments
            for place, event in enumerate(moment.events)
            if event.request_id == name
        ]
        return seen[index]

    def change(self, name, index, **fields):
        """Replace fields of the event of a request's token ``index``."""
        moment, place = self.event(name, index)
        old = moment.events[place]
        moment.events[place] = TokenEvent(**{**vars(old), **fields})

    def move(self, name, index, by, token=None):
        """Add ``by`` to the logprobs of a step, or to that of one token."""
        moment, place = self.event(name, index)
        logprobs = moment.events[place].logprobs.copy()
        logprobs[slice(None) if token is None else token] += np.float32(by)
        chosen = float(logprobs[moment.events[place].token])
        self.change(name, index, logprobs=logprobs, token_logprob=chosen)

    def trace(self):
        """The run as the runner would have recorded it."""
        return Trace(
            schedule=self.schedule,
            mode=self.mode,
            steps=tuple(
                Step(
                    index=index,
                    stages=m.stages,
                    output=StepOutput(
                        tuple(m.events),
                        m.processed,
                        drafted=m.drafted,
                        proposed=m.proposed,
                        stored=m.stored,
                        claims=m.claims,
                        pooled=m.pooled,
                        reused=m.reused,
                    ),
                    forwards=tuple(m.forwards),
                    probes=tuple(m.probes),
                    removed_from=m.removed_from,
                    rows=m.rows,
                    pending=m.pending,
                    alive=m.alive,
                    layers=m.layers,
                )
                for index, m in enumerate(self.moments)
            ),
            failure=self.failure,
            out_of_steps=self.out_of_steps,
            cache_bytes_at_end=self.held,
            kept=self.kept,
            left=self.left,
            counted=self.counted,
        )


class Script:
    """The right runs of a schedule and the oracle's streams, to be changed and then played."""

    def __init__(self, *, margins=None, sampler=None, alone=False, twins=False, rows=0):
        self.schedule = SCHEDULE
        if alone:
            self.schedule = Schedule("by_hand", (Arrival(SCHEDULE.requests[:1]),))
        if twins:
            first = SCHEDULE.requests[0]
            second = msgspec.structs.replace(first, request_id="twin")
            self.schedule = Schedule("by_hand", (Arrival((first, second)),))
        if rows:
            many = tuple(Request(f"r{row}", (1, 2, 3 + row), 5) for row in range(rows))
            self.schedule = Schedule("by_hand", (Arrival(many),))
        if sampler:
            first = Request("a", (1, 2, 3), 5, sampler)
            requests = (first, *SCHEDULE.requests[1:])
            self.schedule = Schedule("by_hand", (Arrival(requests),), SCHEDULE.removals)
        self.want = {
            request.request_id: stream(seed, request.max_tokens, margins=margins)
            for seed, request in enumerate(self.schedule.requests)
        }
        if twins:
            self.want["twin"] = self.want["a"]
        self.forced = self._take(Mode.FORCED)
        self.free = self._take(Mode.FREE)
        self.third: Take | None = None
        self.policy = None
        self.dtype = "float32"
        self.asked_noise: list[str] = []
        self.asked_thorough: list[str] = []
        self.rare_noise = NOISE  # what only many runs detect

    def repeat_forced(self):
        """Have a third run, right so far; the judge makes it where the first two differ."""
        self.third = self._take(Mode.FORCED)
        return self.third

    def play(self, **options):
        """The play as a check sees it."""
        takes = [self.forced, self.free] + ([self.third] if self.third else [])
        measures = (self._envelope, self._thorough)
        return Play(
            self.schedule,
            tuple(take.trace() for take in takes),
            self.want,
            floor=lambda name: flat_envelope(len(self.want[name].tokens), NOISE),
            **(
                {
                    "envelope": self._envelope,
                    "wider": lambda name, _: [partial(f, name) for f in measures],
                    "policy": self.policy,
                    "dtype": self.dtype,
                }
                | options
            ),
        )

    def _envelope(self, name):
        self.asked_noise.append(name)
        level = np.full(len(self.want[name].tokens), NOISE, np.float32)
        return Envelope(level, level, NOISE)

    def _thorough(self, name):
        self.asked_thorough.append(name)
        level = np.full(len(self.want[name].tokens), self.rare_noise, np.float32)
        return Envelope(level, level, NOISE)

    def _take(self, mode):
        names = list(self.want)
        prefill = ForwardCall(len(names), 2)
        moments = [Moment(dict.fromkeys(names, Stage.QUEUED), forwards=[prefill])]
        live, produced, ended = names, dict.fromkeys(names, 0), {}
        longest = max(len(want.tokens) for want in self.want.values())
        for index in range(1, max(8, longest + 1)):
            gone = {}
            if index == REMOVED_AFTER + 1 and "c" in names:
                gone = {"c": Stage.DECODE}
                ended["c"] = Stage.REMOVED
            live = [name for name in names if name not in ended]
            stages = {name: ended.get(name, Stage.DECODE) for name in names}
            moment = Moment(stages, removed_from=gone)
            if live:
                moment.forwards = [ForwardCall(len(live), 1)]
                moment.rows = {name: row for row, name in enumerate(live)}
            for name in live:
                want, step = self.want[name], produced[name]
                produced[name] += 1
                last = produced[name] == len(want.tokens)
                token, logprobs = want.tokens[step], want.logprobs[step]
                reason = FinishReason.LENGTH if last else None
                chosen = float(logprobs[token])
                moment.events.append(TokenEvent(name, token, logprobs, chosen, reason))
                if last:
                    ended[name] = Stage.FINISHED
            moments.append(moment)
        return Take(self.schedule, mode, moments)


def spread_rows(script, rows, by=0.004, dtype=np.float32):
    """Scale the logits of these rows in both runs; a little more in each than in the one before."""
    for take in (script.forced, script.free):
        for row in rows:
            for step in range(5):
                moment, place = take.event(f"r{row}", step)
                logits = moment.events[place].logprobs * (1 + by * (1 + row / 1000))
                logprobs = (logits - np.log(np.exp(logits).sum())).astype(dtype)
                chosen = float(logprobs[moment.events[place].token])
                take.change(f"r{row}", step, logprobs=logprobs, token_logprob=chosen)
