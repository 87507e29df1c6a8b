"""Servers of a library, started here on a family's tiny checkpoint."""

from __future__ import annotations

import functools
import os
import sys
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.origin import Origin
from conformance.core.schedule import Request
from conformance.core.trace import StepOutput
from conformance.plugins.servers.asking import Question
from conformance.plugins.servers.pool import Pool
from conformance.plugins.servers.process import ManagedServer, last_line, last_traceback, start
from conformance.plugins.servers.served_engine import ServedEngine, ServerFailedError
from conformance.plugins.servers.words import text_of

# A server is asked for names of models that it may not load from elsewhere.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


@functools.cache
def servers() -> Pool:
    """Those of this process."""
    return Pool()


class ManagedEngine(ServedEngine):
    """A library's own server, as a user starts it, in a process of its own."""

    health: ClassVar[str] = "/health"

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self._broken = False
        self._log_at = 0
        super().__init__(model, options)

    @classmethod
    def alone(cls, model: Any, request: Request, options: EngineOptions) -> tuple[int, ...] | None:
        """See ``Engine.alone``: of sampled requests, whose random numbers only the server has."""
        if request.sampler is None:
            return None
        engine = cls(model, msgspec.structs.replace(options, busy=False))
        try:
            came = engine._asking.ask(engine.question(request, streamed=False), engine.patience)
            if came.error:
                raise ServerFailedError(f"request {request.request_id!r}: {came.error}")
            return tuple(token for token, _ in engine.tokens(came.answer))
        finally:
            engine.close()

    @classmethod
    @abstractmethod
    def module(cls) -> str:
        """The module that Python runs."""

    @abstractmethod
    def flags(self) -> Sequence[str]:
        """The server's options beside its model and port."""

    def environment(self) -> dict[str, str]:
        """Variables that the server reads."""
        return {}

    @abstractmethod
    def dress(self, folder: Path) -> None:
        """Add to a written checkpoint what a server needs beside it."""

    def connect(self) -> str:
        """See ``ServedEngine.connect``: of a server with the same options, or a new one."""
        if self._origin.family.checkpoint is not None:
            raise Unsupported(
                "the words of a real checkpoint are not one token each; start its server, and "
                "name it: --engine http --url"
            )
        self._server = servers().get(self._key, self._start)
        self._log_at = len(self._server.log())
        return self._server.url

    def close(self) -> None:
        """See ``ServedEngine.close``; one that failed, or has kept prefixes, is not used again."""
        super().close()
        if self._broken or self._hung or self._options.prefix_caching is not None:
            servers().discard(self._key)

    def step(self) -> StepOutput:
        """See ``ServedEngine.step``; after an exception comes a new server."""
        try:
            return super().step()
        except BaseException:
            self._broken = True
            raise

    def ended(self) -> bool:
        """See ``ServedEngine.ended``."""
        return self._server.code is not None

    def state(self) -> str:
        """How its process ended, or the last traceback in its log since this engine began."""
        log = self._server.log()[self._log_at :]
        if (code := self._server.code) is not None:
            return (
                f"the server ended with exit code {code}: {last_traceback(log) or last_line(log)}"
            )
        return last_traceback(log)

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ServedEngine.question``: its words, and all logprobs that there are."""
        asked = request.asked
        chat = asked is None or asked.chat
        text = text_of(request.prompt)
        body: dict[str, Any] = {
            "model": self.model_name(),
            "input": [{"role": "user", "content": text}] if chat else text,
            "max_tokens": request.max_tokens,
            "temperature": 0.0,
            "stream": streamed,
            "logprobs": True,
        }
        if streamed:
            body["stream_options"] = {"include_usage": True}
        if request.stop:
            body["stop"] = [text_of(sequence) for sequence in request.stop]
        if request.sampler is not None:
            body |= request.sampler.args
        return Question(request.request_id, body, chat=chat)

    def model_name(self) -> str:
        """The name by which the server calls its model."""
        return str(self._server.folder)

    @property
    def _origin(self) -> Origin:
        origin: Origin = self._given
        return origin

    @property
    def _key(self) -> Hashable:
        origin = self._origin
        options = (*self.flags(), *sorted(self.environment().items()))
        return (self.name, origin.family.name, origin.dtype, origin.seed, options)

    def _start(self) -> ManagedServer:
        def write(folder: Path) -> None:
            self._origin.write(folder)
            self.dress(folder)

        def command(folder: Path, port: int) -> list[str]:
            place = ["--model", str(folder), "--host", "127.0.0.1", "--port", str(port)]
            return [sys.executable, "-m", self.module(), *place, *self.flags()]

        environment = {**os.environ, **_OFFLINE, **self.environment()}
        return start(write, command, environment=environment, health=self.health)
