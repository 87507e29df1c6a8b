"""A server as an engine: requests are questions over HTTP, tokens are read from their answers.

A step returns the next event. Once no request is open, the server is checked: whether it still
answers, whether unstreamed answers have the text of streamed ones, and what it counted.
"""

from __future__ import annotations

import queue
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import httpx2
import msgspec

from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.http_clients import RefusedAnswerError, get
from conformance.core.schedule import Client, Request, Stage
from conformance.core.token_choice import OF_SERVER, Processor
from conformance.core.trace import Claim, FinishReason, ProbeResult, StepOutput, TokenEvent
from conformance.plugins.servers import malformed
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import (
    Asking,
    Came,
    Question,
    Resets,
    ServerFailedError,
    Tokens,
    reason_of,
    stopped_at,
)
from conformance.plugins.servers.claims import (
    Left,
    about_answer,
    about_asked,
    about_work,
    asked_again,
    memory_kept,
    no_answer,
    no_exception,
    same_text,
    still_open,
    waited_for,
)
from conformance.plugins.servers.entries import about_logprobs
from conformance.plugins.servers.fields import fits_schema

_AGAIN, _LONG = 3, 64  # answers asked for again in one piece, and their most tokens
_MANY = 100  # requests after which memory is checked
_SETTLE_SECONDS, _LOOK_SECONDS, _ASK_SECONDS = 5.0, 0.1, 5.0
_PREFILL_SECONDS = 0.01  # between two looks at how far prompts are
_BEFORE_DECODE = (Stage.QUEUED, Stage.PREFILL)


class Look:
    """A check of an idle server, with the earlier state that it is compared with.

    Attributes:
        broken: answers whose connection broke off.
        memory: the server's bytes when the first request was sent; ``None`` if unknown.
    """

    def __init__(self) -> None:
        self.broken: list[Came] = []
        self.memory: int | None = None

    def after(self, engine: ServedEngine, ended: Sequence[tuple[Request, Came]]) -> Iterator[Claim]:
        """Claims about the server after these answers, while no other request is open."""
        short = [pair for pair in ended if pair[0].max_tokens <= _LONG]
        for request, came in short[:_AGAIN]:
            yield from _whole_again(engine, request, came)
        requests = {request.request_id: request for request, _ in ended}
        for came in self.broken[:_AGAIN]:
            request = requests[came.name]
            again = engine.asking.ask(engine.question(request, streamed=False), engine.patience)
            yield asked_again(came, again)
        self.broken = []
        yield still_open(_settled(engine))
        if len(ended) >= _MANY and self.memory is not None:
            yield from memory_kept(self.memory, engine.memory())


def _whole_again(engine: ServedEngine, request: Request, came: Came) -> Iterator[Claim]:
    """Ask the request again, alone and unstreamed: the text must equal the streamed one."""
    asked = request.asked
    streamed = asked is None or asked.streamed
    if came.answer.reason is None or request.sampler or not streamed:
        return
    question = engine.question(request, streamed=False)
    yield from same_text(came.answer, engine.asking.ask(question, engine.patience))


def _settled(engine: ServedEngine) -> int:
    """The requests that the server reports open, once it has had time to notice their end."""
    end = time.monotonic() + _SETTLE_SECONDS
    while (count := _reported(engine.url)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    return count


def _reported(url: str) -> int:
    """Requests in flight by the server's own metrics; 0 if it has no known metrics."""
    try:
        summary = get(f"{url}/metrics", _ASK_SECONDS).json()["summary"]
        return int(summary["in_flight"])
    except (httpx2.HTTPError, ValueError, TypeError, KeyError, IndexError):
        return 0


def port_answers(url: str) -> bool:
    """Whether anything answers at the URL's port."""
    try:
        get(f"{url}/v1/models", _ASK_SECONDS)
    except RefusedAnswerError:
        return True
    except httpx2.HTTPError:
        return False
    return True


def plain(name: str, engine: ServedEngine) -> Question:
    """A short plain request."""
    low, high = engine.vocabulary()
    return engine.question(Request(name, (low, (low + high) // 2), 2), streamed=False)


def only_the_server(request: Request) -> bool:
    """Whether the right answer differs from the single stream of the model itself.

    The answer may need random numbers, a grammar, another model or an adapter.
    """
    asked = request.asked
    others = asked is not None and bool(asked.other or asked.family or asked.adapter)
    further = asked is not None and (asked.schema or others)
    own = request.sampler is not None and request.sampler.kind == OF_SERVER
    return own or further


def ask_alone(
    kind: type[ServedEngine],
    model: Any,
    request: Request,
    options: EngineOptions,
) -> tuple[int, ...]:
    """The tokens of the answer.

    Raises:
        Unsupported: a request with a schema is refused, or its answer does not fit the schema.
        ServerFailedError: another request gets no answer.
    """
    engine = kind(model, msgspec.structs.replace(options, busy=False))
    schema = request.asked is not None and request.asked.schema
    try:
        came = engine.asking.ask(engine.question(request, streamed=False), engine.patience)
        if schema and (came.refused or (came.error and not kind.elsewhere)):
            raise kind.refusal(f"response_format is refused: {came.error}; not supported")
        if came.refused and kind.elsewhere and request.asked is not None and request.asked.other:
            raise kind.refusal(f"another model is refused: {came.error}")
        if came.error:
            raise engine.failed(f"request {request.request_id!r}: {came.error}")
        if schema and not fits_schema(came.answer.text):
            raise kind.refusal(
                f"response_format is ignored: {came.answer.text[:60]!r} is not of the schema; not "
                "supported"
            )
        return tuple(token for token, _ in engine.whole_answer(request, came.answer))
    finally:
        engine.close()


PATIENCE_SECONDS = 60.0
"""The longest silence while requests are open, and the longest time for a plain request."""
BUSY = "busy"
"""The engine's own request, which is at work while others arrive."""
_MOST_BUSY = 4000  # tokens


class ServedEngine(Engine):
    """The common part of all servers; a subclass defines the address and the requests."""

    patience: ClassVar[float] = PATIENCE_SECONDS
    refusal: ClassVar[type[Unsupported]] = Unsupported  # raised for what a server lacks

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._given, self._options = model, options
        self._requests: dict[str, Request] = {}
        self._stages: dict[str, Stage] = {}
        self._emitted: dict[str, int] = {}
        self._processed: dict[str, int] = {}
        self._found_at_work: dict[str, tuple[str, ...]] = {}
        self._left: dict[str, Left] = {}
        # The answers since clients left, and the most tokens of one.
        self._followers = self._followed = 0
        self._answers: dict[str, Answer] = {}
        self._looked_at = 0
        # Where requests wait for each other, they would only wait for one of the engine's own.
        self._in_turn = bool(self.in_turn(model, options))
        self._own = (BUSY,) if options.busy and not self._in_turn else ()
        self._hung = self._provoked = False
        self._look = Look()
        self.url = self.connect()
        self._asking = Asking(self.url, resets=self.resets())

    @abstractmethod
    def connect(self) -> str:
        """The server's address, once it answers."""

    def resets(self) -> Resets | None:
        """The resets of all engines that ask the same server; ``None``: of this one."""
        return None

    @abstractmethod
    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as it is sent."""

    def ask(self, request: Request) -> Question:
        """The request as it is sent, streamed if it says so."""
        return self.question(request, streamed=request.asked is None or request.asked.streamed)

    @abstractmethod
    def tokens(self, answer: Answer) -> Tokens:
        """The answer's tokens so far with their logprobs; the last may be incomplete."""

    def read(self, request: Request, answer: Answer) -> Tokens:  # noqa: ARG002
        """As ``tokens``, for servers whose answers are read by what was asked."""
        return self.tokens(answer)

    def words(self, request: Request, answer: Answer) -> list[str]:  # noqa: ARG002
        """The texts of the answer's tokens."""
        return answer.text.split()

    def reason(self, request: Request, answer: Answer) -> FinishReason | None:  # noqa: ARG002
        """Why the answer ended."""
        return reason_of(answer)

    def about_text(self, request: Request, answer: Answer) -> Iterator[Claim]:  # noqa: ARG002
        """Claims about the text of an answer whose tokens are known otherwise."""
        return iter(())

    @classmethod
    def alone(cls, model: Any, request: Request, options: EngineOptions) -> tuple[int, ...] | None:
        """See ``Engine.alone``: for answers that only the server can give."""
        return ask_alone(cls, model, request, options) if only_the_server(request) else None

    def whole_answer(self, request: Request, answer: Answer) -> Tokens:
        """The tokens of an answer that has ended."""
        found = self.read(request, answer)
        reason = self.reason(request, answer)
        return found if reason is None else self.finished(request, found, answer, reason)[0]

    def finished(
        self, request: Request, found: Tokens, answer: Answer, reason: FinishReason
    ) -> tuple[Tokens, FinishReason]:
        """The tokens and the reason of an answer that has ended."""
        if reason is not FinishReason.STOP:
            return found, reason
        return self.whole(request, found, answer)

    def failed(self, what: str) -> Exception:
        """The error for a server that refuses a valid request, with an excerpt of its log."""
        return ServerFailedError(f"{what}{self._because()}")

    @property
    def asking(self) -> Asking:
        """The sender of requests."""
        return self._asking

    def memory(self) -> int | None:
        """The server's bytes of memory; ``None`` if unknown."""
        return None

    def ended(self) -> bool:
        """Whether the server's process has ended; ``False`` if unknown."""
        return False

    def state(self) -> str:
        """Details of a failure from the server's process or log; empty if nothing is known."""
        return ""

    def complaint(self) -> str:
        """An exception in the server's log after valid requests; empty if there is none."""
        return ""

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Send all requests at once, the first ones after the engine's own."""
        if not self._requests:
            self._begin(submissions)
        # A request that finds no free slot waits for one.
        room = self._room(len(submissions))
        for submission in submissions:
            request = submission.request
            name = request.request_id
            self._requests[name], self._stages[name] = request, Stage.QUEUED
            self._emitted[name] = 0
            decoding = (o for o, stage in self._stages.items() if stage is Stage.DECODE)
            self._found_at_work[name] = (*decoding, *self._own) if room else ()
            self._asking.send(self.ask(request))

    def remove(self, request_ids: Sequence[str]) -> None:
        """Close the connections of these requests' clients."""
        self._provoked = True
        for name in request_ids:
            pieces = self._asking.leave(name)
            answer = self._answers.get(name, Answer())
            answer.last = time.monotonic()
            self._left[name] = Left(answer, pieces)
            self._stages.pop(name, None)

    def stages(self) -> Mapping[str, Stage]:
        """The stages that a client knows: a request whose answer has begun is in decode.

        One whose prompt is computed in pieces is in prefill, as far as the server reports it.
        """
        return dict(self._stages)

    def step(self) -> StepOutput:
        """The next event or, when no request is open, the result of a check of the server."""
        if self._hung:
            return StepOutput()
        if not self._open():
            return StepOutput(claims=tuple(self.look_after()))
        came = self._next()
        if isinstance(came, dict):
            return StepOutput(processed=came)
        if came is None:
            self._hung = True
            port = "its port answers" if port_answers(self.url) else "nor does its port answer"
            state = f"{self.state() or 'no reason in its log'}; {port}"
            waiting = ", ".join(sorted(self._open())[:4])
            said = f"nothing came for {self.patience:.0f} s for {waiting}"
            what = "an answer to each request"
            named = f"{said}: {state}"
            failed = Claim(what, said, state, holds=False, sentence=named, failed=True)
            return StepOutput(claims=(failed,))
        return self._output(came)

    def _next(self) -> Came | dict[str, int] | None:
        """The next event, or the prompt tokens computed since the last one; ``None`` if neither.

        The latter only for requests that wait, as far as the server reports it.
        """
        end = time.monotonic() + self.patience
        while (left := end - time.monotonic()) > 0:
            waiting = [n for n, stage in self._stages.items() if stage in _BEFORE_DECODE]
            found = self.prefilled(waiting)
            if found is None:
                return self._asking.next(self._open(), left)
            if new := {n: more for n in found if (more := found[n] - self._processed.get(n, 0))}:
                self._processed |= found
                self._stages |= dict.fromkeys(new, Stage.PREFILL)
                return new
            if came := self._asking.next(self._open(), min(left, _PREFILL_SECONDS)):
                return came
        return None

    def prefilled(self, waiting: Sequence[str]) -> Mapping[str, int] | None:  # noqa: ARG002
        """How many tokens of these requests' prompts are computed; ``None`` if never reported."""
        return None

    def probe(self, kind: str) -> ProbeResult:
        """Send a malformed request; see ``malformed``."""
        self._provoked = True
        return malformed.probe(self.url, kind, plain("plain", self))

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``malformed``."""
        return tuple(malformed.KINDS)

    def close(self) -> None:
        """Close all connections; the server keeps running for the next schedule."""
        self._asking.close()

    def _open(self) -> set[str]:
        return {name for name, stage in self._stages.items() if stage is not Stage.FINISHED}

    def _output(self, came: Came) -> StepOutput:
        name, request = came.name, self._requests[came.name]
        self._answers[name] = came.answer
        if came.error:
            return self._refused(came)
        try:
            found = self.read(request, came.answer)
        except (ValueError, KeyError, TypeError) as error:
            # An event that is on time and valid by the API may still be garbled.
            self._asking.leave(name)
            return self._refused(replace(came, error=f"garbled: {error}", on_its_way=True))
        processed, waited = {}, list[Claim]()
        if self._stages[name] in _BEFORE_DECODE:
            self._stages[name] = Stage.DECODE
            processed[name] = len(request.prompt) - self._processed.get(name, 0)
            waited = self._waited(name, came.answer)
        count = len(found)
        over = not came.ended and count > request.max_tokens
        # The finish reason may come after the last token, which is held back for it.
        found = found if came.ended else found[:-1]
        reason = self.reason(request, came.answer) if came.ended else None
        if reason is not None:
            found, reason = self.finished(request, found, came.answer, reason)
        new = found[self._emitted[name] :]
        self._emitted[name] = len(found)
        known = not only_the_server(request)  # alone, their answers have tokens and no logprobs
        events = [TokenEvent(name, token, None, said if known else None) for token, said in new]
        if came.ended:
            self._stages[name] = Stage.FINISHED
            if events and reason is not None:
                last = events[-1]
                events[-1] = TokenEvent(name, last.token, None, last.token_logprob, reason)
        claims = (*waited, *(self._said(came, count) if came.ended else ()))
        if over:  # who knows when it would end
            self._asking.leave(name)
            self._stages[name] = Stage.FINISHED
            most = f"at most {request.max_tokens}"
            claims += (Claim("tokens of an answer, of its limit", str(count), most, holds=False),)
        cached = (came.answer.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        reused = {name: int(cached)} if came.ended and cached else {}
        return StepOutput(tuple(events), processed, reused=reused, claims=claims)

    def whole(self, request: Request, found: Tokens, answer: Answer) -> tuple[Tokens, FinishReason]:
        """The tokens of an answer that ended early, with the stop sequence that it leaves out."""
        left_out = (answer.usage.get("completion_tokens") or 0) - len(found)
        ending = ((token, None) for token in stopped_at(request, left_out))
        return [*found, *ending], FinishReason.STOP

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:
        """The numbers of tokens of the prompt and of the answer; ``None`` if unknown."""
        return len(request.prompt), count

    def counts_tokens(self) -> bool:
        """Whether answers have usage at all."""
        return True

    def _refused(self, came: Came) -> StepOutput:
        """Report a valid request with no or half an answer; raise if the server has ended."""
        if self.ended():
            raise ServerFailedError(f"request {came.name!r}: {came.error}{self._because()}")
        self._stages[came.name] = Stage.FINISHED
        own = "" if came.error.startswith("HTTP") else self.complaint()
        why = f" ({own})" if own else self._because()
        if came.on_its_way:
            self._look.broken.append(came)
        return StepOutput(claims=(no_answer(came, why),))

    def _waited(self, name: str, answer: Answer) -> list[Claim]:
        """Claims about a request's wait for answers at work, if there was a slot for it."""
        found = self._found_at_work.pop(name)
        request = self._requests[name]
        # Another model has its own batch. A client that reads slowly sees its first piece late.
        slow = request.asked is not None and request.asked.client is Client.RAW
        if not self._room() or slow or only_the_server(request):
            return []
        claims = (waited_for(answer, other, self._most(other)) for other in found)
        return [claim for about in claims for claim in about]

    def _room(self, more: int = 0) -> bool:
        """Whether there are slots for all open requests and ``more``."""
        if self._in_turn:
            return False
        count = len(self._open()) + len(self._own) + more
        return count <= self._options.completion_batch_size

    def _most(self, name: str) -> int:
        """The number of tokens of an answer that runs to its limit."""
        own = min(_MOST_BUSY, self.longest() - 2)
        return own if name == BUSY else self._requests[name].max_tokens

    def _said(self, came: Came, count: int) -> Iterator[Claim]:
        request = self._requests[came.name]
        counts, counted = self.counts(request, count), self.counts_tokens()
        yield from about_answer(request, came.answer, *counts, counted=counted)
        yield from about_logprobs(request, came.answer, self.words(request, came.answer))
        yield from self.about_text(request, came.answer)
        if not self._options.markers:
            yield from about_asked(request, came.answer, self.tokens, self._options.words)
        if self._left:  # as many as left may come for their slots
            yield from about_work(self._left, came.answer, self._requests, self._followed)
            self._followers += 1
            self._followed = max(self._followed, request.max_tokens)
            if self._followers >= len(self._left):
                self._left, self._followers, self._followed = {}, 0, 0

    def _because(self) -> str:
        state = self.state()
        return f" ({state})" if state else ""

    def look_after(self) -> Iterator[Claim]:
        """Check the server once, for all answers that ended since the last check."""
        ended = list(self._answers)[self._looked_at :]
        if not ended and not self._left:
            return
        self._looked_at = len(self._answers)
        if not self._provoked:
            yield no_exception(self.complaint())
        self._asking.leave(BUSY)
        came = self._asking.ask(plain("plain", self), self.patience)
        if came.error:
            raise ServerFailedError(f"a plain request afterwards: {came.error}{self._because()}")
        pairs = [(self._requests[n], Came(n, self._answers[n], ended=True)) for n in ended]
        yield from self._look.after(self, pairs)

    def _begin(self, submissions: Sequence[Submission]) -> None:
        """Import the clients, which takes seconds; then be at work, if the options say so."""
        for submission in submissions:
            if (asked := submission.request.asked) is not None:
                asked.client.load()
        if self._own:
            self._begin_busy()
        self._look.memory = self.memory()

    def _begin_busy(self) -> None:
        """Send a long request and wait for its first token; it runs until no other is open."""
        low, high = self.vocabulary()
        # It is not to end before its limit, nor call a tool: in a call, a server need not notice
        # that its client has left.
        unsaid = [token for sequence in self._options.stop for token in sequence]
        if self._options.markers:
            unsaid += [token for _, token in self._options.words]
        ends = {str(token): -100.0 for token in unsaid}
        going_on = (Processor("library", {"logit_bias": ends}),) if ends else ()
        request = Request(BUSY, (high - 1, low), self._most(BUSY), processors=going_on)
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
        """The most tokens of a request and its answer together."""
        return self._given.family.longest or _MOST_BUSY


SERVED = frozenset({Capability.SERVED, Capability.STAGES, Capability.LATE_JOIN})
"""The capabilities of every server."""
