"""Any server of the OpenAI API at a URL, as an engine and as its own library.

The model and its tokenizer are unknown: the right answer is what the server answers to a request
with the same limit alone. Its tokens are those of its logprobs or, without these, its words. The
effect of rounding on logprobs cannot be measured; the usual size is assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, NotOffered, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.http_clients import models
from conformance.core.library import Coverage, Library, Solo
from conformance.core.named_server import OFFERED, named
from conformance.core.numerics import FACTOR
from conformance.core.origin import Origin
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Asked, Request, Schedule, Stage
from conformance.core.trace import Claim, FinishReason, Stream
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Asking, Question, Resets, Tokens, reason_of
from conformance.plugins.servers.claims import at_limit, limited, right_reason, right_text
from conformance.plugins.servers.entries import (
    HALF,
    USUAL_NOISE,
    about_likeliest,
    about_spelled,
)
from conformance.plugins.servers.remote import (
    END,
    SECONDS,
    TOP,
    VOCABULARY,
    WORDS,
    Alone,
    Remote,
    end_of,
    key_of,
    shown,
    with_logprobs,
)
from conformance.plugins.servers.served_engine import SERVED, ServedEngine, only_the_server

FAMILY = "served"
# Measured changes of logprobs by rounding, on models of all sizes; see docs/servers.md.
_APART = 0.5  # nats: rounding moves unlikely tokens' logprobs more than a chosen one's
_SHIFT = 0.1  # nats: it moves them in no direction
_FLOOR = -30.0  # below all logprobs that a server reports


class HttpLibrary(Library):
    """The server asked one request at a time, in place of a library's single stream."""

    name: ClassVar[str] = "http"
    blamed: ClassVar[str] = "the server, or what answers at its address,"
    own_limits: ClassVar[bool] = True  # a limit may cut a word, or a character

    def coverage(self) -> Coverage:
        """See ``Library.coverage``: a server has no modules."""
        return Coverage((), {})

    def load(self, family: Family, *, dtype: str, seed: int) -> Remote:  # noqa: ARG002
        """See ``Library.load``: a server that answers.

        Raises:
            ModelError: no server answers, or it does not have this API.
        """
        server = named()
        found = Remote(server, server.model or models(server.url)[0], dtype)
        found.look()
        return found

    def meter(self, model: Any, *, evaluate: bool = False) -> list[ForwardCall]:  # noqa: ARG002
        """See ``Library.meter``: the server's calls of the model are not visible."""
        return []

    def single_stream(
        self,
        model: Remote,
        request: Request,
        *,
        options: EngineOptions,  # noqa: ARG002
        steps: int,
        prefix: Any = None,  # noqa: ARG002
        forced: tuple[int, ...] | None = None,  # noqa: ARG002
    ) -> Solo:
        """See ``Library.single_stream``."""
        system = request.asked.system if request.asked is not None else 0
        asked = Asked(streamed=False, system=system)
        plain = Request(request.request_id, request.prompt, steps, asked=asked)
        asking = Asking(model.server.url, resets=model.resets)
        try:
            came = asking.ask(model.question(plain, streamed=False), SECONDS)
        finally:
            asking.close()
        if came.error:
            raise ModelError(f"{model.server.url}: {came.error}")
        alone = model.keep(plain, came.answer)
        tokens = alone.tokens[:steps]
        table = _table(model, alone, tokens, steps)
        model.tables[key_of(plain)] = table
        return Solo(Stream((*tokens, *[END] * (steps - len(tokens))), table), None)

    def stateless(
        self,
        model: Any,  # noqa: ARG002
        request: Request,  # noqa: ARG002
        tokens: tuple[int, ...],  # noqa: ARG002
    ) -> None:
        """See ``Library.stateless``: a server has no such pass."""
        return

    def teacher_forced(
        self,
        model: Remote,
        request: Request,
        tokens: tuple[int, ...],
        *,
        options: EngineOptions,
        ulps: float = 0.0,
        seed: int = 0,
    ) -> np.ndarray:
        """See ``Library.teacher_forced``: the answer, changed by the dtype's usual noise."""
        asked = Asked(system=request.asked.system if request.asked is not None else 0)
        key = key_of(Request(request.request_id, request.prompt, len(tokens), asked=asked))
        if key not in model.tables:  # all noise runs use the same answer
            self.single_stream(model, request, options=options, steps=len(tokens))
        table = model.tables[key]
        rng = np.random.default_rng(seed)
        usual = USUAL_NOISE[model.dtype] if ulps else 0.0
        moved: np.ndarray = table + usual * rng.choice((-1.0, 1.0), table.shape).astype(np.float32)
        return moved

    def word(self, model: Remote, token: int) -> str:
        """See ``Library.word``."""
        words = list(model.texts)
        return "(its end)" if token == END else words[token] if token < len(words) else ""

    def churn(self) -> None:
        """See ``Library.churn``: nothing, as the server has its own memory."""

    def versions(self) -> dict[str, str]:
        """See ``Library.versions``."""
        return {"openai": version("openai")}

    def device(self) -> str:
        """See ``Library.device``."""
        return "unknown"


def _table(model: Remote, alone: Alone, tokens: Sequence[int], steps: int) -> np.ndarray:
    """Logprobs ``[steps, VOCABULARY]``; tokens that the server does not report get ``_FLOOR``."""
    table = np.full((steps, VOCABULARY), _FLOOR, np.float32)
    for step, token in enumerate(tokens):
        entry = alone.answer.entries[step] if alone.counted else {}
        for other in entry.get("top_logprobs") or ():
            table[step, model.entry(other)] = other.get("logprob")
        said = entry.get("logprob")
        table[step, token] = 0.0 if said is None else said
    table[len(tokens) :, END] = 0.0
    return table


class HttpEngine(ServedEngine):
    """The server with many requests at once."""

    name: ClassVar[str] = "http"
    library: ClassVar[str] = "http"
    elsewhere: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {*map(Capability, OFFERED)}
    refusal: ClassVar[type[Unsupported]] = NotOffered

    @classmethod
    def not_offered(cls) -> frozenset[Capability]:
        """See ``Engine.not_offered``: what the server's user says."""
        return frozenset(map(Capability, named().not_offered))

    @classmethod
    def in_turn(cls, model: Any, options: EngineOptions) -> str:  # noqa: ARG003
        """See ``Engine.in_turn``."""
        late = Capability.LATE_JOIN in cls.not_offered()
        return "its user says that it answers one request at a time" if late else ""

    @classmethod
    def alone(
        cls, model: Origin, request: Request, options: EngineOptions
    ) -> tuple[int, ...] | None:
        """See ``Engine.alone``; a request's further fields are asked for alone, too."""
        model.model.require(request)
        return super().alone(model, request, options)

    @classmethod
    def check(
        cls,
        model: Any,  # noqa: ARG003
        schedule: Schedule,
        alone: Mapping[str, tuple[int, ...]],
    ) -> None:
        """See ``Engine.check``: answers that end by themselves may end too early."""
        whens = [arrival.when for arrival in schedule.arrivals]
        whens += [removal.when for removal in schedule.removals]
        whens += [probe.when for probe in schedule.probes]
        for when in (one for one in whens if one.stage is Stage.DECODE):
            tokens = alone.get(when.request_id or "", ())
            if END in tokens[: when.count]:
                raise NotOffered(
                    f"the answer to {when.request_id!r} ends by itself after "
                    f"{tokens.index(END)} tokens, and {schedule.name!r} needs {when.count}"
                )

    def connect(self) -> str:
        """See ``ServedEngine.connect``."""
        return self._remote.server.url

    def resets(self) -> Resets:
        """See ``ServedEngine.resets``."""
        return self._remote.resets

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ServedEngine.question``."""
        return self._remote.question(request, streamed=streamed)

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``ServedEngine.probes``: most chat templates make no empty prompt."""
        return tuple(kind for kind in super().probes() if kind != "empty_content")

    def tokens(self, answer: Answer) -> Tokens:
        """See ``ServedEngine.tokens``."""
        return self._remote.entries(answer) or self._remote.words(answer.text)

    def read(self, request: Request, answer: Answer) -> Tokens:
        """See ``ServedEngine.read``."""
        return self._remote.tokens(request, answer)

    def words(self, request: Request, answer: Answer) -> list[str]:
        """See ``ServedEngine.words``: as the answer alone names its tokens."""
        alone = self._alone(request)
        own = [str(entry.get("token")) for entry in answer.entries]
        if alone is None or not alone.counted:  # words are not to be counted as tokens
            return own or super().words(request, answer)
        names = [str(entry.get("token")) for entry in alone.answer.entries]
        found = [token for token, _ in self.read(request, answer)]
        if tuple(found) != alone.tokens[: len(found)]:
            return [list(self._remote.texts)[token] for token in found]
        # Servers name parts of characters in several ways.
        both = itertools.zip_longest(names[: len(found)], own[: len(found)], fillvalue="")
        return [other if HALF in name + other else name for name, other in both]

    def whole_answer(self, request: Request, answer: Answer) -> Tokens:
        """See ``ServedEngine.whole_answer``: it is asked for alone."""
        self._remote.keep(request, answer)
        return super().whole_answer(request, answer)

    def finished(
        self, request: Request, found: Tokens, answer: Answer, reason: FinishReason
    ) -> tuple[Tokens, FinishReason]:
        """See ``ServedEngine.finished``: an answer may end by itself, alone as in a batch.

        One with the right text has the tokens of the answer alone.
        """
        remote, limit, alone = self._remote, request.max_tokens, self._alone(request)
        if request.asked is not None and request.asked.schema:
            return super().finished(request, found, answer, reason)
        right = remote.right(request)
        if alone is not None and right == shown(answer.text):
            tokens = (*alone.tokens, *[END] * limit)[:limit]
            end = end_of(tokens, request.stop)
            known = with_logprobs(tokens[:end], remote.entries(answer) if alone.counted else [])
            wanted = FinishReason.STOP if right != alone.text else reason_of(alone.answer)
            if reason is wanted:
                reason = FinishReason.STOP if end else FinishReason.LENGTH
            return known, reason
        if reason is FinishReason.STOP and remote.stops(request):
            return super().finished(request, found, answer, reason)
        if (missing := limit - len(found)) > 0:
            return [*found, *[(END, None)] * missing], FinishReason.LENGTH
        return found, reason

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:  # noqa: ARG002
        """See ``ServedEngine.counts``: the server's own counts alone, and the limit."""
        answer, alone = self._answers[request.request_id], self._alone(request)
        if answer.reason == FinishReason.LENGTH:
            reached = (answer.usage.get("completion_tokens") or 0) >= request.max_tokens
            made = request.max_tokens if reached else None  # see ``at_limit``
        else:
            same = alone is not None and alone.text == shown(answer.text)
            made = alone.answer.usage.get("completion_tokens") if alone and same else None
        return alone.answer.usage.get("prompt_tokens") if alone else None, made

    def counts_tokens(self) -> bool:
        """See ``ServedEngine.counts_tokens``: as alone, where the API leaves it open."""
        return self._remote.counts_tokens

    def about_text(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """See ``ServedEngine.about_text``: what tokens or words do not show."""
        limit, entries = request.max_tokens, len(answer.entries)
        alone, right = self._alone(request), self._remote.right(request)
        said, ended = shown(answer.text), answer.reason == FinishReason.LENGTH
        own_limits = self._remote.own_limits
        if alone is None or right is None or only_the_server(request):
            yield from at_limit(request, answer, own_limits)
        elif said == right:
            usual = FACTOR * USUAL_NOISE[self._remote.dtype]
            allowed = max(_APART, usual), max(_SHIFT, usual)
            there = alone.answer.entries if alone.counted else ()
            fields = request.asked.fields if request.asked is not None else {}
            most = fields.get("top_logprobs", TOP)
            yield from about_likeliest(request, answer.entries, there, allowed, most)
            wanted = FinishReason.STOP if right != alone.text else alone.answer.reason
            yield right_reason(request, answer, wanted)
            if answer.reason == wanted:
                yield from at_limit(request, answer, own_limits)
        else:
            yield from at_limit(request, answer, own_limits)
            tokens = tuple(token for token, _ in self.read(request, answer))
            if tokens and tokens == alone.tokens[: len(tokens)]:
                yield right_text(request, said, [right])
        if not only_the_server(request):
            yield from limited(request, answer, [*self._remote.full.values()])
        if entries and ended:
            holds = entries in {limit, *own_limits}
            yield Claim("tokens with logprobs", str(entries), str(limit), holds)
        yield from about_spelled(request, answer, self._remote.named_within())

    def _alone(self, request: Request) -> Alone | None:
        return self._remote.alone.get(key_of(request))

    @property
    def _remote(self) -> Remote:
        remote: Remote = self._given.model
        return remote


def served_family() -> Family:
    """The family for whatever model the server has."""
    facts = Facts(library=HttpLibrary.name, tokens=(0, len(WORDS)))
    return Family(FAMILY, facts, {"vocab_size": VOCABULARY})
