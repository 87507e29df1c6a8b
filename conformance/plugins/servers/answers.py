"""The answer to a request, in pieces or as a whole."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CALLED = "tool_calls"
"""The finish reason of an answer that ended by itself, and calls tools."""


class PartKind(enum.StrEnum):
    """The kind of a piece of an answer."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"


@dataclass(frozen=True)
class Part:
    """A piece of an answer; a tool call has its name and arguments as JSON."""

    kind: PartKind
    text: str


@dataclass
class Made:
    """A call of a tool, as far as it has arrived; its arguments are JSON."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Answer:
    """The answer to a request, as far as it has arrived.

    Attributes:
        text: the joined text of all pieces.
        parts: the parts of a chat whose messages have more than text, in order.
        calls: the calls of tools, by their index.
        entries: the entries of the logprobs, in order: dicts with ``token``, ``logprob``, ``id``.
        reason: the finish reason that the server reports.
        stop: what another endpoint than that of chats says in place of it.
        usage: the server's counts of tokens.
        problems: events of a stream that are not as the API's reference has them.
        bare: its request asks for no logprobs.
        ids: the ids of its pieces; ``models``: the models that they name.
        sent, first, last: times of sending and of the first and last piece, in seconds.
        at_sending, at_first: the number of pieces each request had at these two moments.
    """

    text: str = ""
    parts: list[Part] = field(default_factory=list)
    calls: dict[int, Made] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None
    stop: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    bare: bool = False
    ids: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    sent: float = 0.0
    first: float | None = None
    last: float = 0.0
    at_sending: dict[str, int] = field(default_factory=dict)
    at_first: dict[str, int] = field(default_factory=dict)

    def add(self, choice: Any, piece: str | None) -> None:
        """Add a piece of text with its logprobs and finish reason."""
        self.seen()
        self.text += piece or ""
        logprobs = getattr(choice, "logprobs", None)
        for entry in getattr(logprobs, "content", None) or ():
            self.entries.append(entry if isinstance(entry, dict) else entry.model_dump())
        if choice.finish_reason is not None:
            self.reason = str(choice.finish_reason)

    def made_by(self, piece: Mapping[str, Any]) -> None:
        """Note the id of a piece, and the model that it names."""
        self.ids |= {str(piece["id"])} - {"", "None"}
        self.models |= {str(piece.get("model"))} - {"", "None"}

    def seen(self) -> None:
        """Note the time of a piece."""
        self.last = time.monotonic()
        self.first = self.last if self.first is None else self.first

    def add_parts(self, message: Any) -> None:
        """Add the contents of a message or of a piece of one: reasoning, text, tool calls."""
        reasoning = getattr(message, "reasoning", None)
        reasoning = reasoning or getattr(message, "reasoning_content", None)
        if reasoning:
            self.parts.append(Part(PartKind.REASONING, str(reasoning)))
        if message.content:
            self.parts.append(Part(PartKind.TEXT, str(message.content)))
        for at, call in enumerate(getattr(message, "tool_calls", None) or ()):
            self._add_call(call.function)
            index = getattr(call, "index", None)
            made = self.calls.setdefault(at if index is None else index, Made())
            made.id = made.id or call.id or ""
            made.name += call.function.name or ""
            made.arguments += call.function.arguments or ""

    def _add_call(self, function: Any) -> None:
        """Add a piece of a tool call: the name may come first, then the arguments."""
        text = f'{{"name":{json.dumps(function.name)},' if function.name else ""
        if function.arguments:
            text += f'"arguments":{function.arguments}}}'
        self.parts.append(Part(PartKind.TOOL, text.replace(" ", "")))
