"""A server at a URL, of an unknown model and tokenizer, and what it answers to requests alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from conformance.core.errors import ModelError, NotOffered, Unsupported
from conformance.core.http_clients import models
from conformance.core.named_server import NamedServer
from conformance.core.schedule import Asked, Client, Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Asking, Came, Question, Resets, Tokens
from conformance.plugins.servers.entries import HALF
from conformance.plugins.servers.fields import question

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
TOP = 5
"""How many of the likeliest tokens each request asks for, if the server lists any."""
SECONDS = 120.0
"""The longest time until a request alone is answered."""
_LEAST = 16  # tokens of a limit that a server may have of its own: OpenAI's default for texts
_LOGPROBS = {"logprobs": True}
_TOP_LOGPROBS = {**_LOGPROBS, "top_logprobs": TOP}
_USAGE = {"stream_options": {"include_usage": True}}


_IN_VOCABULARIES = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})


@dataclass(frozen=True)
class Alone:
    """An answer to a request alone.

    Attributes:
        tokens: those of its logprobs, or else its words.
        spans: where each of them is in the text. A part of a character has the whole character.
        counted: whether the tokens are those of its logprobs.
        spelled: whether their texts are in the answer's text, one after the other.
    """

    answer: Answer
    text: str
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    counted: bool
    spelled: bool

    @classmethod
    def of(
        cls, answer: Answer, tokens: Sequence[int], words: Iterable[str], *, counted: bool
    ) -> Alone:
        """The answer with these tokens, whose texts are ``words``."""
        text, at = shown(answer.text), 0
        found: list[tuple[int, int] | None] = []
        said = [word.strip() for word in words]
        for word in said:
            begin = text.find(word, at) if word and HALF not in word else -1
            found.append((begin, begin + len(word)) if begin >= 0 else None)
            at = at if begin < 0 else begin + len(word)
        after, spans = len(text), list[tuple[int, int]]()
        for index, span in reversed(list(enumerate(found))):
            before = next((one[1] for one in reversed(found[:index]) if one), 0)
            spans.append(span or (before, after))
            after = spans[-1][0] if span else after
        lost = [word for word, span in zip(said, found, strict=True) if word and not span]
        spelled = any(found) and all(HALF in word for word in lost)
        return cls(answer, text, tuple(tokens), tuple(reversed(spans)), counted, spelled)

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


def _said(entry: Mapping[str, Any]) -> str:
    """The text of an entry's token, which some servers name as their vocabularies do."""
    name, raw = str(entry.get("token")), entry.get("bytes")
    if isinstance(raw, list) and raw:
        return bytes(raw).decode(errors="replace")
    return name.translate(_IN_VOCABULARIES)


def shown(text: str) -> str:
    """A text without white space around it and without a character that the limit cuts."""
    return text.strip().rstrip(HALF).rstrip()


@dataclass
class Remote:
    """The server, and what is known of it.

    Attributes:
        texts: the known texts of tokens, with their numbers.
        made: the number of requests made.
        alone: each answer alone, by ``key_of``.
        tables: its logprobs.
        full: the answers alone that have as many tokens as their limits, by the server's count.
        own_limits: numbers of tokens at which it ends answers alone by a lower limit of its own.
        refused: why the server does not take each field that was tried, alone.
        resets: connections that were reset, in the whole run.
        counts_tokens: whether an answer alone has usage.
    """

    server: NamedServer
    model: str
    dtype: str
    texts: dict[str, int] = field(default_factory=lambda: {w: i for i, w in enumerate(WORDS)})
    made: int = 0
    alone: dict[Any, Alone] = field(default_factory=dict)
    tables: dict[Any, np.ndarray] = field(default_factory=dict)
    full: dict[Any, Answer] = field(default_factory=dict)
    own_limits: set[int] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    resets: Resets = field(default_factory=Resets)
    counts_tokens: bool = False

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
        alone = self.alone.get(key_of(request))
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
            return asking.ask(question, SECONDS)
        finally:
            asking.close()

    def entries(self, answer: Answer) -> Tokens:
        """The tokens of the entries of logprobs; empty if one has neither name nor bytes."""
        if not all(isinstance(e.get("token"), str) or e.get("bytes") for e in answer.entries):
            return []
        return [(self.entry(entry), entry.get("logprob")) for entry in answer.entries]

    def entry(self, entry: Mapping[str, Any]) -> int:
        """The number of an entry's token, which may be a part of a character."""
        text = str(entry.get("token") or "")
        raw = entry.get("bytes") if HALF in text or not text else None
        shown = "".join(f"<0x{byte:02X}>" for byte in raw or ())  # as some vocabularies write them
        return self.token(shown or text.strip() or text)

    def named_within(self) -> Iterator[str]:
        """The names of tokens within the answers alone, neither first nor last there."""
        for alone in self.alone.values():
            yield from (str(entry.get("token")) for entry in alone.answer.entries[1:-1])

    def words(self, text: str) -> Tokens:
        """The words of a text in place of tokens."""
        return [(self.token(word), None) for word in text.split()]

    def keep(self, request: Request, answer: Answer) -> Alone:
        """Keep an answer alone."""
        self.counts_tokens = self.counts_tokens or bool(answer.usage)
        entries = self.entries(answer)
        made = Alone.of(answer, [t for t, _ in entries], map(_said, answer.entries), counted=True)
        if not made.spelled:
            words = answer.text.split()
            made = Alone.of(answer, [t for t, _ in self.words(answer.text)], words, counted=False)
        self.alone[key_of(request)] = made
        count = answer.usage.get("completion_tokens") or 0
        if count >= request.max_tokens and not (request.asked and request.asked.schema):
            self.full[key_of(request)] = answer
        elif count >= _LEAST and answer.reason == FinishReason.LENGTH:
            self.own_limits.add(count)
        return made

    def tokens(self, request: Request, answer: Answer) -> Tokens:
        """The answer's tokens so far: those of the answer alone, as far as the texts are the same.

        Otherwise those of its own logprobs or, without these, its words.
        """
        own, alone = self.entries(answer), self.alone.get(key_of(request))
        if alone is None:
            return own or self.words(answer.text)
        if not alone.counted:
            return self.words(answer.text)
        said = shown(answer.text)
        if alone.text.startswith(said):
            count = len(own) or alone.covered(said)
            if (self.right(request) or "").startswith(said):
                # A stop string's last character may have more tokens than the stop sequence.
                count = min(count, end_of(alone.tokens, request.stop) or count)
            return with_logprobs(alone.tokens[:count], own)
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
        if (alone := self.alone.get(key_of(request))) is None:
            return None
        found = [at for stop in self.stops(request) if (at := alone.text.find(stop)) >= 0]
        return alone.text[: min(found)].rstrip() if found else alone.text


def with_logprobs(tokens: Sequence[int], said: Tokens) -> Tokens:
    """The tokens with the logprobs of an answer's entries, as far as it has any."""
    logprobs = [logprob for _, logprob in said[: len(tokens)]]
    return list(zip(tokens, [*logprobs, *[None] * (len(tokens) - len(logprobs))], strict=True))


def end_of(tokens: tuple[int, ...], stop: Sequence[tuple[int, ...]]) -> int | None:
    """The number of tokens through the first stop sequence, if there is one."""
    ends = range(1, len(tokens) + 1)
    return next((e for e in ends for s in stop if s and tokens[max(0, e - len(s)) : e] == s), None)


def key_of(request: Request) -> Any:
    """The key of what the server answers to a request alone."""
    asked = request.asked or Asked()
    own = (asked.schema, asked.other, repr(request.sampler))
    return request.prompt, asked.system, request.max_tokens, own


def _lacks(name: str, answer: Answer) -> str:
    """Why an answer shows that a field for logprobs is ignored; empty if it is not."""
    if name not in {"logprobs", "top_logprobs"}:
        return ""
    tops = [top for entry in answer.entries for top in entry.get("top_logprobs") or ()]
    every = [*answer.entries, *tops]
    if every and not any(isinstance(entry.get("token"), str) for entry in every):
        return "the entries have no `token`, a text that OpenAI's API requires"
    found = answer.entries if name == "logprobs" else tops
    return "" if found else "it is ignored: an answer in one piece has none"
