"""A server as an engine: requests are questions over HTTP, tokens are read from their answers.

A step gives what came next. Once nothing is open any more, the server is looked at: does it still
answer, is an answer in one piece the text of one in many, and what do its counts say.
"""

from __future__ import annotations

import queue
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Stage
from conformance.core.trace import Claim, FinishReason, ProbeResult, StepOutput, TokenEvent
from conformance.plugins.servers import malformed
from conformance.plugins.servers.asking import Answer, Asking, Came, Question
from conformance.plugins.servers.claims import about_answer, about_work, same_text, waited_for

Tokens = list[tuple[int, float | None]]
"""Those of an answer, with the logprob that the server says of each."""
PATIENCE_SECONDS = 60.0
"""How long nothing may come while requests are open, and how long a plain request may take."""
BUSY = "busy"
"""The request of the engine's own that is at work while others arrive."""
_MOST_BUSY = 4000  # tokens
_AGAIN, _LONG = 3, 64  # answers that are asked for again, whole; not of more tokens


class ServedEngine(Engine):
    """What all servers have in common. A subclass says where the server is and what it takes."""

    patience: ClassVar[float] = PATIENCE_SECONDS

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._given, self._options = model, options
        self._requests: dict[str, Request] = {}
        self._stages: dict[str, Stage] = {}
        self._emitted: dict[str, int] = {}
        self._found_at_work: dict[str, dict[str, int]] = {}
        self._left: dict[str, Answer] = {}
        self._answers: dict[str, Answer] = {}
        self._waiting: list[Came] = []
        self._claims: list[Claim] = []
        self._looked_at = 0
        self._hung = False
        self.url = self.connect()
        self._asking = Asking(self.url)
        try:
            if options.busy:
                self._begin_busy()
        except BaseException:
            self._asking.close()
            raise

    @abstractmethod
    def connect(self) -> str:
        """The server's address, once it answers."""

    @abstractmethod
    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as it is sent."""

    @abstractmethod
    def tokens(self, answer: Answer) -> Tokens:
        """Tokens of an answer so far with their logprobs; the last may not be whole yet."""

    def ended(self) -> bool:
        """Whether the server's process has ended, where that is known."""
        return False

    def state(self) -> str:
        """What the server's process or log says of a failure; empty if nothing is known."""
        return ""

    def insert(self, submissions: Sequence[Submission]) -> None:
        """All are sent at once."""
        for submission in submissions:
            request = submission.request
            name = request.request_id
            self._requests[name], self._stages[name] = request, Stage.QUEUED
            self._emitted[name] = 0
            self._found_at_work[name] = {
                other: self._emitted[other]
                for other, stage in self._stages.items()
                if stage is Stage.DECODE
            }
            asked = request.asked
            self._asking.send(self.question(request, streamed=asked is None or asked.streamed))

    def remove(self, request_ids: Sequence[str]) -> None:
        """Their clients close their connections."""
        for name in request_ids:
            self._asking.leave(name)
            self._left[name] = self._answers.get(name, Answer())
            self._left[name].last = time.monotonic()
            self._stages.pop(name, None)
        self._drain()

    def stages(self) -> Mapping[str, Stage]:
        """As a client knows them: an answer that has begun is decoded."""
        return dict(self._stages)

    def step(self) -> StepOutput:
        """What came next, or what a look at the server shows when nothing is open."""
        if self._hung:
            return StepOutput()
        if not self._open():
            return StepOutput(claims=tuple(self._look_after()))
        came = self._next()
        if came is None:
            self._hung = True
            state = self.state() or "no reason in its log"
            waiting = ", ".join(sorted(self._open())[:4])
            said = f"nothing came for {self.patience:.0f} s for {waiting}"
            return StepOutput(
                claims=(Claim("an answer to each request", said, state, holds=False),)
            )
        return self._output(came)

    def probe(self, kind: str) -> ProbeResult:
        """A malformed request; see ``malformed``."""
        return malformed.probe(self.url, kind, self._plain())

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``malformed``."""
        return tuple(malformed.KINDS)

    def close(self) -> None:
        """All connections; the server goes on for the next schedule."""
        self._asking.close()

    def _open(self) -> set[str]:
        return {name for name, stage in self._stages.items() if stage is not Stage.FINISHED}

    def _next(self) -> Came | None:
        if self._waiting:
            return self._waiting.pop(0)
        end = time.monotonic() + self.patience
        while (left := end - time.monotonic()) > 0:
            try:
                came = self._asking.came.get(timeout=left)
            except queue.Empty:
                return None
            if came.name in self._stages:
                return came
        return None

    def _drain(self) -> None:
        """Keep what came for those that are still open; after a removal nothing else counts."""
        while True:
            try:
                came = self._asking.came.get_nowait()
            except queue.Empty:
                break
            self._waiting.append(came)
        self._waiting = [came for came in self._waiting if came.name in self._stages]

    def _output(self, came: Came) -> StepOutput:
        name, request = came.name, self._requests[came.name]
        self._answers[name] = came.answer
        if came.error:
            return self._refused(came)
        processed, waited = {}, list[Claim]()
        if self._stages[name] is Stage.QUEUED:
            self._stages[name] = Stage.DECODE
            processed[name] = len(request.prompt)
            waited = self._waited(name, (came.answer.first or came.answer.sent) - came.answer.sent)
        found = self.tokens(came.answer)
        count = len(found)
        # The reason of the end may come after the last token, which is held back for it.
        found = found if came.ended else found[:-1]
        reason = _reason(came.answer) if came.ended else None
        if reason is FinishReason.STOP:
            found, reason = self.whole(request, found)
        new = found[self._emitted[name] :]
        self._emitted[name] = len(found)
        # Of a sampled request only the tokens are known alone.
        known = request.sampler is None
        events = [TokenEvent(name, token, None, said if known else None) for token, said in new]
        if came.ended:
            self._stages[name] = Stage.FINISHED
            if events and reason is not None:
                last = events[-1]
                events[-1] = TokenEvent(name, last.token, None, last.token_logprob, reason)
        claims = (*waited, *(self._said(came, count) if came.ended else ()))
        cached = (came.answer.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        reused = {name: int(cached)} if came.ended and cached else {}
        return StepOutput(tuple(events), processed, reused=reused, claims=claims)

    def whole(self, request: Request, found: Tokens) -> tuple[Tokens, FinishReason]:
        """Tokens of an answer that ended before its limit, with the sequence that it leaves out."""
        return [*found, *((token, None) for token in _stopped_at(request))], FinishReason.STOP

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:
        """Tokens of the prompt and of the answer, where they are known."""
        return len(request.prompt), count

    def _refused(self, came: Came) -> StepOutput:
        """A right request got no answer, or half of one; a server that has ended is a crash."""
        if self.ended():
            raise ServerFailedError(f"request {came.name!r}: {came.error}{self._because()}")
        self._stages[came.name] = Stage.FINISHED
        why = self._because() if came.error.startswith("HTTP") else ""
        said = f"{came.error}{why} for {came.name!r}"
        return StepOutput(
            claims=(Claim("the answer to a right request", said, "one", holds=False),)
        )

    def _waited(self, name: str, seconds: float) -> list[Claim]:
        """How much of the answers at work a request waited for, if there was a slot for it."""
        found = self._found_at_work.pop(name)
        if len(self._open()) > self._options.completion_batch_size:
            return []
        asked = {other: self._requests[other].max_tokens for other in found}
        return [waited_for(self._emitted[o] - n, asked[o] - n, seconds) for o, n in found.items()]

    def _said(self, came: Came, count: int) -> Iterator[Claim]:
        request = self._requests[came.name]
        yield from about_answer(request, came.answer, *self.counts(request, count))
        if self._left:
            yield from about_work(self._left, came.answer, self._requests)
            self._left = {}

    def _because(self) -> str:
        state = self.state()
        return f" ({state})" if state else ""

    def _look_after(self) -> Iterator[Claim]:
        """Once for all that has ended since the last look."""
        ended = list(self._answers)[self._looked_at :]
        if not ended and not self._left:
            return
        self._looked_at = len(self._answers)
        self._asking.leave(BUSY)
        came = self._asking.ask(self._plain(), self.patience)
        if came.error:
            raise ServerFailedError(f"a plain request afterwards: {came.error}{self._because()}")
        short = [name for name in ended if self._requests[name].max_tokens <= _LONG]
        for name in short[:_AGAIN]:
            yield from self._whole_again(name)

    def _whole_again(self, name: str) -> Iterator[Claim]:
        """The same request by itself, in one piece: it must have the text that was streamed."""
        request, answer = self._requests[name], self._answers[name]
        asked = request.asked
        if answer.reason is None or request.sampler or not (asked is None or asked.streamed):
            return
        again = self._asking.ask(self.question(request, streamed=False), self.patience)
        yield from same_text(answer, again)

    def _plain(self) -> Question:
        """A short plain request."""
        low, high = self.vocabulary()
        request = Request("plain", (low, (low + high) // 2), 2)
        return self.question(request, streamed=False)

    def _begin_busy(self) -> None:
        """Send a long request and wait for its first token; it goes on until nothing is open."""
        low, high = self.vocabulary()
        request = Request(BUSY, (high - 1, low), min(_MOST_BUSY, self.longest() - 2))
        self._asking.send(self.question(request, streamed=True))
        try:
            came = self._asking.came.get(timeout=self.patience)
        except queue.Empty:
            raise ServerFailedError(f"no token for a plain request{self._because()}") from None
        if came.error:
            raise ServerFailedError(f"a plain request: {came.error}{self._because()}")

    def vocabulary(self) -> tuple[int, int]:
        """The half-open range of token ids that requests may have."""
        found: tuple[int, int] = self._given.family.tokens
        return found

    def longest(self) -> int:
        """The most tokens of a request with its answer."""
        return self._given.family.longest or _MOST_BUSY


class ServerFailedError(RuntimeError):
    """A server refused a right request, or broke off."""


def _reason(answer: Answer) -> FinishReason | None:
    """Why the answer ended, if that is one of the reasons that there are."""
    return next((reason for reason in FinishReason if reason == answer.reason), None)


def _stopped_at(request: Request) -> tuple[int, ...]:
    """The stop sequence, which an answer leaves out; where there are several, none is known."""
    return request.stop[0] if len(request.stop) == 1 else ()


SERVED = frozenset({Capability.SERVED, Capability.STAGES, Capability.LATE_JOIN})
"""What every server can do."""
