"""Any server of the OpenAI API at a URL, as an engine and as its own library.

The model is unknown: the right answer is what the server answers to a request asked alone, and a
token is a text. The effect of rounding on logprobs cannot be measured; the usual size is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError
from conformance.core.family import Facts, Family
from conformance.core.forward_calls import ForwardCall
from conformance.core.library import Coverage, Library, Solo
from conformance.core.named_server import named
from conformance.core.schedule import Asked, Request
from conformance.core.trace import FinishReason, Stream
from conformance.plugins.servers.answers import Tokens
from conformance.plugins.servers.asking import Answer, Asking, Question
from conformance.plugins.servers.english import WORDS
from conformance.plugins.servers.remote import END, VOCABULARY, Remote, models
from conformance.plugins.servers.served_engine import SERVED, ServedEngine

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
        return Remote(server, server.model or models(server.url)[0], dtype)

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

    def churn(self) -> None:
        """See ``Library.churn``: nothing, as the server has its own memory."""

    def versions(self) -> dict[str, str]:
        """See ``Library.versions``."""
        return {"openai": version("openai")}

    def device(self) -> str:
        """See ``Library.device``."""
        return "unknown"


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
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {
        Capability.CANCEL,
        Capability.MODELS,
        Capability.PROBES,
        Capability.SCHEMAS,
        Capability.SLOTS,
        Capability.STOP,
    }

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

    def whole(self, request: Request, found: Tokens) -> tuple[Tokens, FinishReason]:
        """See ``ServedEngine.whole``: an answer may end by itself, alone as in a batch."""
        if request.stop or (request.asked is not None and request.asked.schema):
            return super().whole(request, found)
        missing = request.max_tokens - len(found)
        return [*found, *[(END, None)] * missing], FinishReason.LENGTH

    def counts(self, request: Request, count: int) -> tuple[int | None, int | None]:  # noqa: ARG002
        """See ``ServedEngine.counts``: an entry of logprobs is a token, a word need not be."""
        return None, len(self._answers[request.request_id].entries) or None

    @property
    def _remote(self) -> Remote:
        remote: Remote = self._given.model
        return remote


def served_family() -> Family:
    """The family for whatever model the server has."""
    facts = Facts(library=HttpLibrary.name, tokens=(0, len(WORDS)))
    return Family(FAMILY, facts, {"vocab_size": VOCABULARY})
