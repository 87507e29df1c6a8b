"""Any server of the OpenAI API at a URL, as an engine and as its own library.

The model is unknown: the right answer is what the server answers to a request asked alone, and a
token is a text. The effect of rounding on logprobs cannot be measured; the usual size is assumed.
"""

from __future__ import annotations

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
from conformance.plugins.servers.asking import Asking, Came, Question, Tokens
from conformance.plugins.servers.claims import right_text
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


@dataclass
class Remote:
    """The server, and what is known of it.

    Attributes:
        texts: the known texts of tokens, with their numbers.
        made: the number of requests made.
        tables: logprobs of answers alone, by prompt and length.
        ends: how many tokens each answer has that ended by itself alone, by prompt.
        refused: why the server does not take each field that was tried, alone.
        prompts: how many tokens the server counted in each prompt alone.
        answers: the text of each answer alone, with its limit, by prompt.
    """

    server: NamedServer
    model: str
    dtype: str
    texts: dict[str, int] = field(default_factory=lambda: {w: i for i, w in enumerate(WORDS)})
    made: int = 0
    tables: dict[Any, Any] = field(default_factory=dict)
    ends: dict[Any, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    prompts: dict[Any, int | None] = field(default_factory=dict)
    answers: dict[Any, tuple[int, str]] = field(default_factory=dict)

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
        """The text of these tokens."""
        words = list(self.texts)
        return " ".join(words[token] for token in tokens)

    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as text.

        Raises:
            Unsupported: the user's limit of requests is reached.
        """
        self._count()
        name = self.model_name(request.asked.other if request.asked is not None else 0)
        # An answer ended by itself at such a token: it has no text.
        stop = tuple(s for s in request.stop if END not in s)
        plain = msgspec.structs.replace(request, stop=stop)
        made = question(plain, name, self.text, streamed=streamed, **self._logprobs())
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
        if stop := [s for s in request.stop if END not in s]:
            fields["stop"] = [self.text(stop[0])]
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
        asking = Asking(self.server.url)
        try:
            return asking.ask(question, _SECONDS)
        finally:
            asking.close()

    def tokens(self, answer: Answer) -> Tokens:
        """The answer's words, with logprobs if the words are its tokens."""
        words = answer.text.split()
        said = [entry.get("logprob") for entry in answer.entries]
        known = said if len(said) == len(words) else [None] * len(words)
        return [(self.token(word), logprob) for word, logprob in zip(words, known, strict=True)]


FAMILY = "served"
_SECONDS = 120.0
# Measured changes of logprobs by rounding, on models of all sizes; see docs/servers.md.
_USUAL_NOISE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.15}
_FLOOR = -30.0  # below all logprobs that a server reports


class HttpLibrary(Library):
    """The server asked one request at a time, in place of a library's single stream."""

    name: ClassVar[str] = "http"
    blamed: ClassVar[str] = "the server, or what answers at its address,"

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
        asking = Asking(model.server.url)
        try:
            came = asking.ask(model.question(plain, streamed=False), _SECONDS)
        finally:
            asking.close()
        if came.error:
            raise ModelError(f"{model.server.url}: {came.error}")
        tokens = [token for token, _ in model.tokens(came.answer)][:steps]
        if len(tokens) < steps:
            model.ends[request.prompt, system] = len(tokens)
        model.prompts[request.prompt, system] = came.answer.usage.get("prompt_tokens")
        model.answers[request.prompt, system] = steps, came.answer.text.strip()
        table = _table(model, came.answer, tokens, steps)
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
        key = (request.prompt, len(tokens))
        if key not in model.tables:  # all noise runs use the same answer
            made = self.single_stream(model, request, options=options, steps=len(tokens))
            model.tables[key] = made.stream.logprobs
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


def _table(model: Remote, answer: Answer, tokens: Sequence[int], steps: int) -> np.ndarray:
    """Logprobs ``[steps, VOCABULARY]``; tokens that the server does not report get ``_FLOOR``."""
    table = np.full((steps, VOCABULARY), _FLOOR, np.float32)
    fits = len(answer.entries) == len(tokens)
    for step, token in enumerate(tokens):
        entry = answer.entries[step] if fits else {}
        for other in entry.get("top_logprobs") or ():
            table[step, model.token(str(other.get("token")).strip())] = other.get("logprob")
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

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ServedEngine.question``."""
        return self._remote.question(request, streamed=streamed)

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``ServedEngine.probes``: most chat templates make no empty prompt."""
        return tuple(kind for kind in super().probes() if kind != "empty_content")

    def tokens(self, answer: Answer) -> Tokens:
        """See ``ServedEngine.tokens``."""
        return self._remote.tokens(answer)

    def whole(self, request: Request, found: Tokens, answer: Answer) -> tuple[Tokens, FinishReason]:
        """See ``ServedEngine.whole``: an answer may end by itself, alone as in a batch."""
        system = request.asked.system if request.asked is not None else 0
        end = self._remote.ends.get((request.prompt, system))
        schema = request.asked is not None and request.asked.schema
        if schema or (request.stop and (end is None or len(found) < end)):
            return super().whole(request, found, answer)
        if sequence := next((s for s in request.stop if END in s), ()):
            return [*found, *[(END, None)] * sequence.count(END)], FinishReason.STOP
        missing = request.max_tokens - len(found)
        if missing <= 0:  # each word has a token or more: it is the limit that ended it
            return found, FinishReason.STOP
        return [*found, *[(END, None)] * missing], FinishReason.LENGTH

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:  # noqa: ARG002
        """See ``ServedEngine.counts``: the server's own count of the prompt alone, and the limit.

        Of an answer that ended otherwise, an entry of logprobs is a token; a word need not be.
        """
        answer, alone = self._answers[request.request_id], self._remote.prompts
        ended = answer.reason == FinishReason.LENGTH
        made = request.max_tokens if ended else len(answer.entries) or None
        return alone.get(_prompt(request)), made

    def about_text(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """See ``ServedEngine.about_text``: white space and logprobs, which words do not show."""
        count, entries = request.max_tokens, len(answer.entries)
        if entries and answer.reason == FinishReason.LENGTH:
            yield Claim("tokens with logprobs", str(entries), str(count), entries == count)
        limit, text = self._remote.answers.get(_prompt(request), (0, ""))
        said = answer.text.strip()
        same = said.split() == text.split()[: len(said.split())]
        if limit >= count and same and not only_the_server(request):
            yield right_text(said, [text[: len(said)]])

    @property
    def _remote(self) -> Remote:
        remote: Remote = self._given.model
        return remote


def _prompt(request: Request) -> Any:
    """The key of what the server answered to a request alone."""
    return request.prompt, request.asked.system if request.asked is not None else 0


def served_family() -> Family:
    """The family for whatever model the server has."""
    facts = Facts(library=HttpLibrary.name, tokens=(0, len(WORDS)))
    return Family(FAMILY, facts, {"vocab_size": VOCABULARY})
