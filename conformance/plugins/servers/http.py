"""Any server of the OpenAI API at a URL, as an engine and as its own library.

The model and its tokenizer are unknown: the right answer is what the server answers to a request
with the same limit alone. Its tokens are those of its logprobs or, without these, its words. The
effect of rounding on logprobs cannot be measured; the usual size is assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, ClassVar

import msgspec
import numpy as np

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, NotOffered, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.forward_calls import ForwardCall
from conformance.core.http_clients import models
from conformance.core.library import Coverage, Library, Solo
from conformance.core.named_server import OFFERED, NamedServer, named
from conformance.core.origin import Origin
from conformance.core.real_clients import Client
from conformance.core.schedule import Asked, Request, Schedule, Stage
from conformance.core.trace import Claim, FinishReason, Stream
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Asking, Came, Question, Resets, Tokens, reason_of
from conformance.plugins.servers.claims import at_limit, right_text
from conformance.plugins.servers.fields import question
from conformance.plugins.servers.served_engine import SERVED, ServedEngine, only_the_server

WORDS = tuple(
    """
    the of and to in is it you that he was for on are with as his they be at one have this from
    or had by hot but some what there we can out other were all your when up use word how said
    an each she which do their time if will way about many then them would write like so these
    her long make thing see him two has look more day could go come did my sound no most number
    who over know water than call first people may down side been now find any new work part
    take get place made live where after back little only round man year came show every good me
    give our under name very through just form much great think say help low line before turn
    cause same mean differ move right boy old too does set three want air well also play small
    end put home read hand port large spell add even land here must big high such follow act why
    ask men change went light kind off need house picture try us again animal point mother world
    near build self earth father head stand own page should country found answer school grow
    study still learn plant cover food sun four between state keep eye never last let thought
    city tree cross farm hard start might story saw far sea draw left late run while press close
    """.split()  # noqa: SIM905 - readable in rows
)
"""Common words for prompts to a server with an unknown vocabulary."""


VOCABULARY = 8192
"""The most different texts of tokens in a run."""
END = VOCABULARY - 1
"""Replaces each missing token of an answer that ended before its limit."""
_TOP = 5
_SECONDS = 120.0
_LOGPROBS = {"logprobs": True}
_TOP_LOGPROBS = {**_LOGPROBS, "top_logprobs": _TOP}
_USAGE = {"stream_options": {"include_usage": True}}


_HALF = "\ufffd"  # in place of a character that is cut


@dataclass(frozen=True)
class Alone:
    """An answer to a request alone.

    Attributes:
        tokens: those of its logprobs, or else its words.
        spans: where each of them is in the text. A part of a character has the whole character.
        counted: whether the tokens are those of its logprobs.
    """

    answer: Answer
    text: str
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    counted: bool

    @classmethod
    def of(
        cls, answer: Answer, tokens: Sequence[int], words: Sequence[str], *, counted: bool
    ) -> Alone:
        """The answer with these tokens, whose texts are ``words``."""
        text, at = _shown(answer.text), 0
        found: list[tuple[int, int] | None] = []
        for word in (word.strip() for word in words):
            begin = text.find(word, at) if word and _HALF not in word else -1
            found.append((begin, begin + len(word)) if begin >= 0 else None)
            at = at if begin < 0 else begin + len(word)
        after, spans = len(text), list[tuple[int, int]]()
        for index, span in reversed(list(enumerate(found))):
            before = next((one[1] for one in reversed(found[:index]) if one), 0)
            spans.append(span or (before, after))
            after = spans[-1][0] if span else after
        return cls(answer, text, tuple(tokens), tuple(reversed(spans)), counted)

    def covered(self, text: str) -> int:
        """How many tokens are whole within a beginning of the text."""
        return sum(end <= len(text) for _, end in self.spans)

    def stop_text(self, sequence: tuple[int, ...]) -> str:
        """The text of a sequence of the answer's tokens; empty if it is not in the answer."""
        size = len(sequence)
        at = (i for i in range(len(self.tokens)) if self.tokens[i : i + size] == sequence)
        first = next(at, None)
        if first is None:
            return ""
        return self.text[self.spans[first][0] : self.spans[first + size - 1][1]].strip()


def _shown(text: str) -> str:
    """A text without white space around it and without a character that the limit cuts."""
    return text.strip().rstrip(_HALF).rstrip()


@dataclass
class Remote:
    """The server, and what is known of it.

    Attributes:
        texts: the known texts of tokens, with their numbers.
        made: the number of requests made.
        alone: each answer alone, by ``_key``.
        tables: its logprobs.
        refused: why the server does not take each field that was tried, alone.
        resets: connections that were reset, in the whole run.
    """

    server: NamedServer
    model: str
    dtype: str
    texts: dict[str, int] = field(default_factory=lambda: {w: i for i, w in enumerate(WORDS)})
    made: int = 0
    alone: dict[Any, Alone] = field(default_factory=dict)
    tables: dict[Any, np.ndarray] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    resets: Resets = field(default_factory=Resets)

    def token(self, text: str) -> int:
        """The number of a token's text.

        Raises:
            Unsupported: there are too many texts.
        """
        found = self.texts.setdefault(text, len(self.texts))
        if found >= END:
            raise Unsupported(f"the server's answers have more than {END} different tokens")
        return found

    def model_name(self, other: int = 0) -> str:
        """The server's name for its model, or for another of its models.

        Raises:
            NotOffered: the server names no other model.
        """
        if not other:
            return self.model
        try:
            others = [name for name in models(self.server.url) if name != self.model]
        except ModelError as error:
            raise NotOffered(str(error)) from error
        if len(others) < other:
            raise NotOffered(f"/v1/models names no model beside {self.model}")
        return others[other - 1]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of these tokens, for a prompt."""
        words = list(self.texts)
        return " ".join(words[token] for token in tokens if token != END)

    def stops(self, request: Request) -> list[str]:
        """The texts of the stop sequences, as they are in the answer alone.

        An answer ended by itself at such a token: it has no text.
        """
        alone = self.alone.get(_key(request))
        sequences = [sequence for sequence in request.stop if END not in sequence]
        return [(alone.stop_text(s) if alone else "") or self.text(s) for s in sequences]

    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as text.

        Raises:
            Unsupported: the user's limit of requests is reached.
        """
        self._count()
        name = self.model_name(request.asked.other if request.asked is not None else 0)
        plain = msgspec.structs.replace(request, stop=())
        made = question(plain, name, self.text, streamed=streamed, **self._logprobs())
        if stops := self.stops(request):
            made.body["stop"] = stops
        if streamed and self.refused["stream_options"]:
            made.body.pop("stream_options")
        return replace(made, unread=False)  # its client reads every answer

    def _count(self) -> None:
        """Count a request.

        Raises:
            Unsupported: the user's limit of requests is reached.
        """
        self.made += 1
        if self.server.most is not None and self.made > self.server.most:
            raise Unsupported(f"more than {self.server.most:,} requests (--requests)")

    def _logprobs(self) -> dict[str, Any]:
        """The fields for logprobs, as far as the server takes them."""
        if self.refused["logprobs"]:
            return {}
        return _LOGPROBS if self.refused["top_logprobs"] else _TOP_LOGPROBS

    def look(self) -> None:
        """Find out which of the fields that every request has the server takes."""
        self.refuses("stream_options", _USAGE, streamed=True)
        self.refuses("logprobs", _LOGPROBS)
        self.refuses("top_logprobs", _TOP_LOGPROBS)

    def require(self, request: Request) -> None:
        """Ask for each further field of a request alone, once.

        Raises:
            NotOffered: the server does not take it.
        """
        fields = dict(request.asked.fields) if request.asked is not None else {}
        if stop := self.stops(request):
            fields["stop"] = stop[:1]
        for name, value in fields.items():
            if why := self.refuses(name, {name: value}):
                raise NotOffered(f"{name}: {why}")
        asked = request.asked or Asked()
        if asked.client is not Client.OPENAI:
            name = f"{'streams' if asked.streamed else 'answers'} for the client {asked.client}"
            if why := self.refuses(name, {}, streamed=asked.streamed, client=asked.client):
                raise NotOffered(f"{name}: {why}")

    def refuses(
        self,
        name: str,
        fields: Mapping[str, Any],
        *,
        streamed: bool = False,
        client: Client = Client.OPENAI,
    ) -> str:
        """Why the server does not take a field, in a request alone; empty if it does.

        A server that refuses it once alone may not be ready. One that fails takes it: all requests
        have it then, and say so.
        """
        if name not in self.refused:
            plain = {"model": self.model, "max_tokens": 1, "temperature": 0.0, "stream": streamed}
            said = [{"role": "user", "content": WORDS[0]}]
            asked = Question(name, {**plain, "input": said, **fields}, client=client)
            came = self._asked(asked)
            if came.refused:
                came = self._asked(asked)
            lacks = "" if came.error else _lacks(name, came.answer)
            self.refused[name] = came.error if came.refused else lacks
        return self.refused[name]

    def _asked(self, question: Question) -> Came:
        self._count()
        asking = Asking(self.server.url, resets=self.resets)
        try:
            return asking.ask(question, _SECONDS)
        finally:
            asking.close()

    def entries(self, answer: Answer) -> Tokens:
        """The tokens of the entries of logprobs; empty if one of them names none."""
        names = [entry.get("token") for entry in answer.entries]
        if not all(isinstance(name, str) for name in names):
            return []
        return [(self.entry(entry), entry.get("logprob")) for entry in answer.entries]

    def entry(self, entry: Mapping[str, Any]) -> int:
        """The number of an entry's token, which may be a part of a character."""
        text = str(entry.get("token"))
        raw = entry.get("bytes") if _HALF in text or not text else None
        return self.token(repr(raw) if raw else text.strip() or text)

    def words(self, text: str) -> Tokens:
        """The words of a text in place of tokens."""
        return [(self.token(word), None) for word in text.split()]

    def keep(self, request: Request, answer: Answer) -> Alone:
        """Keep an answer alone."""
        entries = self.entries(answer)
        words = [str(e.get("token")) for e in answer.entries] if entries else answer.text.split()
        tokens = [token for token, _ in entries or self.words(answer.text)]
        made = Alone.of(answer, tokens, words, counted=bool(entries))
        self.alone[_key(request)] = made
        return made

    def tokens(self, request: Request, answer: Answer) -> Tokens:
        """The answer's tokens so far: those of the answer alone, as far as the texts are the same.

        Otherwise those of its own logprobs or, without these, its words.
        """
        own, alone = self.entries(answer), self.alone.get(_key(request))
        if alone is None:
            return own or self.words(answer.text)
        if not alone.counted:
            return self.words(answer.text)
        said = _shown(answer.text)
        if alone.text.startswith(said):
            return with_logprobs(alone.tokens[: len(own) or alone.covered(said)], own)
        if own:
            return own
        pairs = enumerate(zip(alone.text, said, strict=False))
        apart = next((i for i, (a, b) in pairs if a != b), len(alone.text))
        count = alone.covered(said[:apart])
        begin = alone.spans[count - 1][1] if count else 0
        return [*with_logprobs(alone.tokens[:count], []), *self.words(said[begin:])]

    def right(self, request: Request) -> str | None:
        """The right text of an answer that has ended; ``None`` if it is unknown.

        It ends before the first stop string, which may be in the text earlier than its tokens are.
        """
        if (alone := self.alone.get(_key(request))) is None:
            return None
        found = [at for stop in self.stops(request) if (at := alone.text.find(stop)) >= 0]
        return alone.text[: min(found)].rstrip() if found else alone.text


def with_logprobs(tokens: Sequence[int], said: Tokens) -> Tokens:
    """The tokens with the logprobs of an answer's entries, as far as it has any."""
    logprobs = [logprob for _, logprob in said[: len(tokens)]]
    return list(zip(tokens, [*logprobs, *[None] * (len(tokens) - len(logprobs))], strict=True))


def _key(request: Request) -> Any:
    """The key of what the server answers to a request alone."""
    asked = request.asked or Asked()
    own = (asked.schema, asked.other, repr(request.sampler))
    return request.prompt, asked.system, request.max_tokens, own


FAMILY = "served"
_SECONDS = 120.0
# Measured changes of logprobs by rounding, on models of all sizes; see docs/servers.md.
_USUAL_NOISE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.15}
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
            came = asking.ask(model.question(plain, streamed=False), _SECONDS)
        finally:
            asking.close()
        if came.error:
            raise ModelError(f"{model.server.url}: {came.error}")
        alone = model.keep(plain, came.answer)
        tokens = alone.tokens[:steps]
        table = _table(model, alone, tokens, steps)
        model.tables[_key(plain)] = table
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
        key = _key(Request(request.request_id, request.prompt, len(tokens), asked=asked))
        if key not in model.tables:  # all noise runs use the same answer
            self.single_stream(model, request, options=options, steps=len(tokens))
        table = model.tables[key]
        rng = np.random.default_rng(seed)
        usual = _USUAL_NOISE[model.dtype] if ulps else 0.0
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


def _lacks(name: str, answer: Answer) -> str:
    """Why an answer shows that a field for logprobs is ignored; empty if it is not."""
    found = {
        "logprobs": bool(answer.entries),
        "top_logprobs": any(entry.get("top_logprobs") for entry in answer.entries),
    }
    return "" if found.get(name, True) else "it is ignored: an answer in one piece has none"


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
    def unreached(cls, schedule: Schedule, alone: Mapping[str, tuple[int, ...]]) -> str:
        """See ``Engine.unreached``: answers that end by themselves may end too early."""
        whens = [arrival.when for arrival in schedule.arrivals]
        whens += [removal.when for removal in schedule.removals]
        whens += [probe.when for probe in schedule.probes]
        for when in (one for one in whens if one.stage is Stage.DECODE):
            tokens = alone.get(when.request_id or "", ())
            if END in tokens[: when.count]:
                return (
                    f"the answer to {when.request_id!r} ends by itself after "
                    f"{tokens.index(END)} tokens, and {schedule.name!r} needs {when.count}"
                )
        return ""

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
        if alone is None or not alone.counted:
            return super().words(request, answer)
        names = [str(entry.get("token")) for entry in alone.answer.entries]
        own = [str(entry.get("token")) for entry in answer.entries]
        found = [token for token, _ in self.read(request, answer)]
        if tuple(found) != alone.tokens[: len(found)]:
            return [list(self._remote.texts)[token] for token in found]
        # Servers name parts of characters in several ways.
        both = itertools.zip_longest(names[: len(found)], own[: len(found)], fillvalue="")
        return [other if _HALF in name + other else name for name, other in both]

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
        if alone is not None and right == _shown(answer.text):
            tokens = (*alone.tokens, *[END] * limit)[:limit]
            end = _end(tokens, request.stop)
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
            same = alone is not None and alone.text == _shown(answer.text)
            made = alone.answer.usage.get("completion_tokens") if alone and same else None
        return alone.answer.usage.get("prompt_tokens") if alone else None, made

    def about_text(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """See ``ServedEngine.about_text``: what tokens or words do not show."""
        limit, entries = request.max_tokens, len(answer.entries)
        ended = answer.reason == FinishReason.LENGTH
        yield from at_limit(request, answer)
        if entries and ended:
            yield Claim("tokens with logprobs", str(entries), str(limit), entries == limit)
        alone, right = self._alone(request), self._remote.right(request)
        if alone is None or right is None or only_the_server(request):
            return
        tokens = tuple(token for token, _ in self.read(request, answer))
        said = _shown(answer.text)
        if tokens and tokens == alone.tokens[: len(tokens)]:
            yield right_text(said, [right])
        if said == right == alone.text:
            same, found = answer.reason == alone.answer.reason, str(alone.answer.reason)
            yield Claim("the finish_reason of the same text", str(answer.reason), found, same)

    def _alone(self, request: Request) -> Alone | None:
        return self._remote.alone.get(_key(request))

    @property
    def _remote(self) -> Remote:
        remote: Remote = self._given.model
        return remote


def _end(tokens: tuple[int, ...], stop: Sequence[tuple[int, ...]]) -> int | None:
    """The number of tokens through the first stop sequence, if there is one."""
    ends = range(1, len(tokens) + 1)
    return next((e for e in ends for s in stop if s and tokens[max(0, e - len(s)) : e] == s), None)


def served_family() -> Family:
    """The family for whatever model the server has."""
    facts = Facts(library=HttpLibrary.name, tokens=(0, len(WORDS)))
    return Family(FAMILY, facts, {"vocab_size": VOCABULARY})
