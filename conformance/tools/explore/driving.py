"""Drives an engine call by call and checks the engine protocol after each step.

The calls are recorded as a schedule, with the step number before which each was made, so that a
finding can be run again, shrunk and kept like that of a schedule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.failures import failure_of
from conformance.core.numerics import FACTOR
from conformance.core.schedule import (
    Arrival,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    triggers,
)
from conformance.core.trace import Step, Stream, TokenEvent
from conformance.core.verdict import Finding, Verdict
from conformance.run.runner import Run, step_bound
from conformance.tools.explore.player import Player

_OVER = (Stage.FINISHED, Stage.REMOVED)


class Drive:
    """One engine and the calls made so far.

    Attributes:
        broken: the first violation of the protocol, or ``None``.
        suspect: whether a token or a logprob differs from the oracle's; since that may be a tie,
            only running the schedule decides.
        refused: whether the library does not support this.
        failed_alone: whether a request's single stream failed; running the schedule shows how.
    """

    def __init__(self, player: Player, options: EngineOptions) -> None:
        self._player = player
        self._options = options
        self._arrivals: list[Arrival] = []
        self._removals: list[Removal] = []
        self._want: dict[str, Stream] = {}
        self._floor: dict[str, float] = {}
        self._now = 0
        self._last_removed: tuple[int, str] | None = None
        self.broken: Finding | None = None
        self.suspect = False
        self.refused = False
        self.failed_alone = False
        self._engine: Engine | None = None
        staged = Capability.STAGES in player.engine.capabilities
        self._counted = staged and options.drafting is None
        subject = player.subject
        self._run = Run(
            player.engine,
            subject.model_for(player.engine),
            Schedule("program", (), options=options),
            subject.meter,
            forced=None,
            hints=None,
        )
        with self._calling("making the engine"):
            self._engine = player.engine(subject.model_for(player.engine), options)

    @property
    def schedule(self) -> Schedule:
        """The calls so far."""
        return Schedule("program", tuple(self._arrivals), tuple(self._removals), (), self._options)

    @property
    def over(self) -> bool:
        """Whether further calls are pointless."""
        return self.broken is not None or self.refused or self.failed_alone

    @property
    def live(self) -> tuple[str, ...]:
        """The requests that have not ended."""
        return tuple(n for n, stage in self._run.stages.items() if stage not in _OVER)

    def sources(self) -> tuple[tuple[Request, int | None], ...]:
        """Requests whose caches can be copied, and after how many tokens (``None``: at the end)."""
        stages, produced = self._run.stages, self._run.produced
        if self.over:
            return ()
        found: list[tuple[Request, int | None]] = []
        for request in self.schedule.requests:
            name = request.request_id
            if request.continues is not None or request.media:
                continue
            if stages[name] is Stage.FINISHED:
                found.append((request, None))
            elif stages[name] is Stage.DECODE and produced.get(name):
                found.append((request, produced[name]))
        return tuple(found)

    def insert(self, requests: Sequence[Request]) -> None:
        """Insert requests."""
        if self.over or self._engine is None:
            return
        self._arrivals.append(Arrival(tuple(requests), self._when()))
        try:
            for request in requests:
                self._single_stream(request)
        except Exception:  # noqa: BLE001 - whatever a library raises is a result
            self.suspect = self.failed_alone = True
            return
        with self._calling("inserting"):
            self._run.insert(self._engine, requests)

    def _single_stream(self, request: Request) -> None:
        """Compute the single stream of a request, and its noise."""
        oracle, name = self._player.subject.oracle, request.request_id
        with self._player.subject.phases("single stream"):
            want = self._want[name] = oracle.solo(request, self._options, self.schedule)
            self._floor[name] = oracle.floor_envelope(want, self._options).floor

    def _when(self) -> Trigger:
        """The current moment; follows the last removal if that happened before the same step."""
        if self._last_removed and self._last_removed[0] == self._now:
            return Trigger(self._last_removed[1], Stage.REMOVED)
        return Trigger(count=self._now)

    def remove(self, name: str) -> None:
        """Cancel a request."""
        if self.over or self._engine is None:
            return
        self._removals.append(Removal((name,), Trigger(count=self._now)))
        self._last_removed = (self._now, name)
        with self._calling("removing"):
            self._run.remove(self._engine, (name,), self._now)

    def step(self) -> None:
        """Take one step, then check the protocol."""
        if self.over or self._engine is None:
            return
        before = self.live
        with self._calling("stepping"):
            self._run.step(self._engine, self._now)
        self._now += 1
        if self.over:
            return
        with self._player.subject.phases("checks"):
            self.broken = next(self._violations(self._run.steps[-1], before), None)

    def finish(self) -> None:
        """Step until all requests have ended, then twice more, then close."""
        bound = self._now + step_bound(self.schedule)
        while self.live and not self.over and self._now < bound:
            self.step()
        if self.live and not self.over:
            self.broken = _finding(Verdict.HANG, f"unfinished after {self._now} steps", "live")
        for _ in range(2):
            self.step()
        if self._engine is not None:
            with self._calling("closing"):
                self._engine.close()

    def _violations(self, step: Step, before: Sequence[str]) -> Iterator[Finding]:
        """Violations of the protocol in the step."""
        for event in step.output.events:
            yield from self._event(event, before)
        assert self._engine is not None
        stages, rows = self._engine.stages(), self._engine.rows()
        ended = sorted(n for n, at in self._run.stages.items() if at in _OVER and n not in before)
        ended = [name for name in ended if name in stages]
        if ended:
            yield _finding(Verdict.PROTOCOL, f"{ended[0]} has ended and is still held", "held")
        if sorted(rows.values()) != list(range(len(rows))):
            yield _finding(Verdict.PROTOCOL, "rows are not 0, 1, 2, ...", f"{dict(rows)}")
        held = step.cache_bytes
        if held is not None and (held < 0 or (held and not before)):
            what = f"{held} bytes of cache are held for {len(self.live)} requests"
            yield _finding(Verdict.LEAK, what, f"{held} bytes")
        widest = max((call.batch for call in step.forwards), default=0)
        # With drafts, a row that has ended may be verified once more.
        if self._counted and widest > len(before):
            what = f"a model call of {widest} rows with {len(before)} requests live"
            yield _finding(Verdict.LEAK, what, f"{widest} rows")

    def _event(self, event: TokenEvent, before: Sequence[str]) -> Iterator[Finding]:
        name = event.request_id
        if name not in before:
            yield _finding(Verdict.PROTOCOL, f"a token for {name}, which is not live", "a token")
            return
        want, at = self._want[name], self._run.produced[name] - 1
        if at >= len(want.tokens) or event.token != want.tokens[at]:
            self.suspect = True
            return
        last = at == len(want.tokens) - 1
        if event.finish_reason != (want.finish_reason if last else None):
            what = f"{name} ends with {event.finish_reason} at its token {at}"
            yield _finding(Verdict.PROTOCOL, what, str(event.finish_reason))
        if event.logprobs is not None and want.logprobs is not None:
            with np.errstate(invalid="ignore"):  # both masked
                off = np.abs(event.logprobs - want.logprobs[at])
            both = event.logprobs == want.logprobs[at]
            self.suspect |= not bool((both | (off <= FACTOR * self._floor[name])).all())

    @contextlib.contextmanager
    def _calling(self, doing: str) -> Iterator[None]:
        """Around each engine call: measures its time, injects the fault, catches failures."""
        subject, raised = self._player.subject, None
        with subject.phases("engine"), subject.around("program"):
            try:
                yield
            except Exception as error:  # noqa: BLE001 - whatever an engine raises is a result
                raised = failure_of(error, doing, theirs=True)
        if raised is not None and raised.unsupported:
            self.refused = True
        elif raised is not None:
            got = f"{raised.type_name}: {raised.message}"
            self.broken = _finding(Verdict.CRASH, f"the engine raised {raised}", got)


def replay(player: Player, schedule: Schedule) -> Finding | None:
    """How an engine breaks the protocol when a program's calls are made again, if it does.

    ``None`` also if a cache to go on from is not there at the moment of a call.
    """
    drive = Drive(player, schedule.options)
    for now in range(1 + max(when.count for when in triggers(schedule))):
        due: list[Arrival | Removal] = []
        due += [a for a in schedule.arrivals if a.when == Trigger(count=now)]
        for removal in (r for r in schedule.removals if r.when == Trigger(count=now)):
            name = removal.request_ids[0]
            due += [removal, *(a for a in schedule.arrivals if a.when.request_id == name)]
        for item in due:
            if isinstance(item, Removal):
                if item.request_ids[0] in drive.live:
                    drive.remove(item.request_ids[0])
            elif not _can_go_on(drive, item.requests):
                return None
            else:
                drive.insert(item.requests)
        drive.step()
    drive.finish()
    return drive.broken


def _can_go_on(drive: Drive, requests: Sequence[Request]) -> bool:
    """Whether the caches that these requests continue can be copied now."""
    there = {(source.request_id, after) for source, after in drive.sources()}
    wanted = (request.continues for request in requests)
    return all(c is None or (c.request_id, c.after) in there for c in wanted)


def _finding(verdict: Verdict, what: str, got: str) -> Finding:
    return Finding(verdict, "machine", what, schedule="program", got=got)
