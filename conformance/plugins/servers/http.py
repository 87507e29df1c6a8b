"""Any server of the OpenAI API at a URL, as an engine and as its own library.

Nothing is known of its model: what is right is what it answers when nothing else is asked, and a
token is a text. How far rounding moves its logprobs can't be measured; what is usual is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, ClassVar

import httpx2
import numpy as np

from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.library import Coverage, Library, Solo
from conformance.core.named_server import NamedServer, named
from conformance.core.schedule import Request
from conformance.core.trace import FinishReason, ForwardCall, Stream
from conformance.plugins.servers.asking import Answer, Asking, Question
from conformance.plugins.servers.english import WORDS
from conformance.plugins.servers.served_engine import SERVED, ServedEngine, Tokens
from conformance.run.hookspecs import hookimpl
from conformance.scenarios import Scenario
from conformance.scenarios.served import SERVED_SCENARIOS

FAMILY = "served"
VOCABULARY = 8192
"""Different texts of tokens that a run may meet."""
END = VOCABULARY - 1
"""Stands for each token that an answer lacks when it ended before its limit."""
_TOP = 5
_SECONDS = 120.0
# What rounding moved logprobs by on models of all sizes; see docs/servers.md.
_USUAL_NOISE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.15}
_FLOOR = -30.0  # below all logprobs that a server names


@dataclass
class Remote:
    """The server, the texts of tokens that are known, how many requests were made, and answers."""

    server: NamedServer
    model: str
    dtype: str
    texts: dict[str, int] = field(default_factory=lambda: {w: i for i, w in enumerate(WORDS)})
    made: int = 0
    tables: dict[Any, Any] = field(default_factory=dict)

    def token(self, text: str) -> int:
        """The number of a token's text.

        Raises:
            Unsupported: there are too many.
        """
        found = self.texts.setdefault(text, len(self.texts))
        if found >= END:
            raise Unsupported(f"the server's answers have more than {END} different tokens")
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """The words of these numbers."""
        words = list(self.texts)
        return " ".join(words[token] for token in tokens)

    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as words.

        Raises:
            Unsupported: so many requests were made as the user allows.
        """
        self.made += 1
        if self.server.most is not None and self.made > self.server.most:
            raise Unsupported(f"more than {self.server.most:,} requests (--requests)")
        asked, text = request.asked, self.text(request.prompt)
        chat = asked is None or asked.chat
        body: dict[str, Any] = {
            "model": self.model,
            "input": [{"role": "user", "content": text}] if chat else text,
            "max_tokens": request.max_tokens,
            "temperature": 0.0,
            "stream": streamed,
            "logprobs": True,
            "top_logprobs": _TOP,
        }
        if streamed:
            body["stream_options"] = {"include_usage": True}
        if request.stop:
            body["stop"] = [self.text(sequence) for sequence in request.stop]
        return Question(request.request_id, body, chat=chat)

    def tokens(self, answer: Answer) -> Tokens:
        """Its words, with the logprobs of an answer whose words are its tokens."""
        words = answer.text.split()
        said = [entry.get("logprob") for entry in answer.entries]
        known = said if len(said) == len(words) else [None] * len(words)
        return [(self.token(word), logprob) for word, logprob in zip(words, known, strict=True)]


class HttpLibrary(Library):
    """The server asked alone, in place of a library's single stream."""

    name: ClassVar[str] = "http"

    def coverage(self) -> Coverage:
        """See ``Library.coverage``: it has no modules."""
        return Coverage((), {})

    def load(self, family: Family, *, dtype: str, seed: int) -> Remote:  # noqa: ARG002
        """See ``Library.load``: a server that answers.

        Raises:
            ModelError: there is none, or it is no server of this API.
        """
        server = named()
        return Remote(server, server.model or _first_model(server.url), dtype)

    def meter(self, model: Any, *, evaluate: bool = False) -> list[ForwardCall]:  # noqa: ARG002
        """See ``Library.meter``: its calls are not seen."""
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
        plain = Request(request.request_id, request.prompt, steps)
        asking = Asking(model.server.url)
        try:
            came = asking.ask(model.question(plain, streamed=False), _SECONDS)
        finally:
            asking.close()
        if came.error:
            raise ModelError(f"{model.server.url}: {came.error}")
        tokens = [token for token, _ in model.tokens(came.answer)][:steps]
        table = _table(model, came.answer, tokens, steps)
        return Solo(Stream((*tokens, *[END] * (steps - len(tokens))), table), None)

    def stateless(
        self,
        model: Any,  # noqa: ARG002
        request: Request,  # noqa: ARG002
        tokens: tuple[int, ...],  # noqa: ARG002
    ) -> None:
        """See ``Library.stateless``: it has no such pass."""
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
        """See ``Library.teacher_forced``: moved by what is usual in the dtype."""
        key = (request.prompt, len(tokens))
        if key not in model.tables:  # each run of the noise is the same answer
            made = self.single_stream(model, request, options=options, steps=len(tokens))
            model.tables[key] = made.stream.logprobs
        table = model.tables[key]
        rng = np.random.default_rng(seed)
        usual = _USUAL_NOISE[model.dtype] if ulps else 0.0
        moved: np.ndarray = table + usual * rng.choice((-1.0, 1.0), table.shape).astype(np.float32)
        return moved

    def churn(self) -> None:
        """See ``Library.churn``: its memory is not this process's."""

    def versions(self) -> dict[str, str]:
        """See ``Library.versions``."""
        return {"openai": version("openai")}

    def device(self) -> str:
        """See ``Library.device``."""
        return "unknown"


def _first_model(url: str) -> str:
    try:
        found = httpx2.get(f"{url}/v1/models", timeout=_SECONDS)
        found.raise_for_status()
        return str(found.json()["data"][0]["id"])
    except httpx2.HTTPError as error:
        raise ModelError(f"{url}/v1/models: no server answers there: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ModelError(
            f"{url}/v1/models names no model ({type(error).__name__}); --model does"
        ) from error


def _table(model: Remote, answer: Answer, tokens: Sequence[int], steps: int) -> np.ndarray:
    """Logprobs ``[steps, VOCABULARY]``; what the server does not name is the unlikeliest."""
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
    """The server asked by many at once."""

    name: ClassVar[str] = "http"
    library: ClassVar[str] = "http"
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {
        Capability.CANCEL,
        Capability.PROBES,
        Capability.SLOTS,
        Capability.STOP,
    }

    def connect(self) -> str:
        """See ``ServedEngine.connect``."""
        return self._remote.server.url

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ServedEngine.question``."""
        return self._remote.question(request, streamed=streamed)

    def tokens(self, answer: Answer) -> Tokens:
        """See ``ServedEngine.tokens``."""
        return self._remote.tokens(answer)

    def whole(self, request: Request, found: Tokens) -> tuple[Tokens, FinishReason]:
        """See ``ServedEngine.whole``: it may end by itself, alone as beside others."""
        if request.stop:
            return super().whole(request, found)
        missing = request.max_tokens - len(found)
        return [*found, *[(END, None)] * missing], FinishReason.LENGTH

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:  # noqa: ARG002
        """See ``ServedEngine.counts``: a word need not be a token, an entry of logprobs is one."""
        return None, len(self._answers[request.request_id].entries) or None

    @property
    def _remote(self) -> Remote:
        remote: Remote = self._given.model
        return remote


@hookimpl
def conformance_engine_names() -> list[str]:
    """Without these nothing is imported."""
    return [HttpEngine.name]


@hookimpl
def conformance_libraries() -> list[Library]:
    """The server asked alone."""
    return [HttpLibrary()]


@hookimpl
def conformance_families() -> list[Family]:
    """Whatever the server serves."""
    facts = Facts(library=HttpLibrary.name, tokens=(0, len(WORDS)))
    return [Family(FAMILY, facts, {"vocab_size": VOCABULARY})]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server."""
    return [HttpEngine]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """What is asked of servers."""
    return list(SERVED_SCENARIOS)
