"""The part of a server's engine that looks at it and questions asked alone need."""

from __future__ import annotations

from typing import ClassVar, Protocol

from conformance.core.schedule import Request
from conformance.plugins.servers.answers import Tokens
from conformance.plugins.servers.asking import Answer, Asking, Question


class AskedServer(Protocol):
    """A server that can be asked; ``ServedEngine`` documents the members."""

    url: str
    patience: ClassVar[float]

    @property
    def asking(self) -> Asking: ...  # noqa: D102

    def question(self, request: Request, *, streamed: bool) -> Question: ...  # noqa: D102

    def whole_answer(self, request: Request, answer: Answer) -> Tokens: ...  # noqa: D102

    def vocabulary(self) -> tuple[int, int]: ...  # noqa: D102

    def memory(self) -> int | None: ...  # noqa: D102

    def failed(self, what: str) -> Exception: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102
