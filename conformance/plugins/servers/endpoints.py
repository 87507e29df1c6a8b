"""Endpoints besides chats and completions: what is sent to them, and how their answers are read.

An answer becomes one as of a chat, so all that is claimed of chats is claimed of it, too. The
order of a stream's events is read strictly, by the references of Anthropic's Messages
(https://docs.anthropic.com/en/api/messages-streaming) and OpenAI's Responses
(https://platform.openai.com/docs/api-reference/responses-streaming).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from conformance.core.trace import FinishReason
from conformance.plugins.servers.answers import CALLED, Answer, Made, Part, PartKind

# Fields of a chat that other endpoints do not have.
_OF_CHATS = ("logprobs", "top_logprobs", "stream_options", "context_management", "stop")


class StreamError(ValueError):
    """A stream ended with an error of the server."""


def sent(endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a chat, as the endpoint wants it."""
    rest = {name: value for name, value in body.items() if name not in _OF_CHATS}
    said, most = rest.pop("input"), rest.pop("max_tokens")
    system = [message["content"] for message in said if message["role"] == "system"]
    others = [message for message in said if message["role"] != "system"]
    (whole,) = system or [""]
    return READERS[endpoint].fields(rest, others, whole, most, body.get("stop"))


class Reader:
    """Reads one answer of an endpoint.

    Args:
        answer: gets what is read.
    """

    path: ClassVar[str]

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: dict[int, str] = {}
        self._begun = 0
        self.ended = False

    @staticmethod
    @abstractmethod
    def fields(
        rest: dict[str, Any], said: list[Any], system: Any, most: int, stop: list[str] | None
    ) -> dict[str, Any]:
        """The body for these messages, this system message, a text or blocks, and this limit."""

    @abstractmethod
    def event(self, data: Mapping[str, Any]) -> None:
        """Read an event of a stream."""

    @abstractmethod
    def whole(self, data: Mapping[str, Any]) -> None:
        """Read an answer in one piece."""

    def named(self, name: str, data: Mapping[str, Any]) -> None:
        """Read an event with this name."""
        self._wrong(name != data["type"], f"an event named {name} of type {data['type']}")
        self._wrong(self.ended, f"{name} after the end")
        self.event(data)

    def _wrong(self, wrong: bool, what: str) -> None:  # noqa: FBT001
        if wrong:
            self._answer.problems.append(what)

    def _opened(self, index: int, kind: str) -> None:
        self._wrong(index != self._begun, f"part {index} begins as number {self._begun}")
        self._begun += 1
        self._open[index] = kind

    def _of_open(self, index: int, what: str) -> str:
        self._wrong(index not in self._open, f"{what} of part {index}, which is not open")
        return self._open.get(index, "")

    def _closed(self, index: int) -> None:
        self._of_open(index, "the end")
        self._open.pop(index, None)

    def _add(self, kind: PartKind, text: str) -> None:
        self._answer.parts.append(Part(kind, text))
        if kind is PartKind.TEXT:
            self._answer.text += text

    def _ends(self, reason: str, said: str, prompt: int, made: int) -> None:
        self._wrong(bool(self._open), f"the end while part {[*self._open][:1]} is open")
        self._answer.reason, self._answer.stop = reason, said
        total = prompt + made
        self._answer.usage = {
            "prompt_tokens": prompt,
            "completion_tokens": made,
            "total_tokens": total,
        }


class MessagesReader(Reader):
    """Of Anthropic's Messages."""

    path: ClassVar[str] = "messages"
    _DELTAS: ClassVar[Mapping[str, str]] = {
        "text_delta": "text",
        "thinking_delta": "thinking",
        "signature_delta": "thinking",
        "input_json_delta": "tool_use",
    }
    _REASONS: ClassVar[Mapping[str, str]] = {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "max_tokens": FinishReason.LENGTH,
        "tool_use": CALLED,
    }

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._prompt: int | None = None
        self._delta: Mapping[str, Any] | None = None

    @staticmethod
    def fields(
        rest: dict[str, Any], said: list[Any], system: Any, most: int, stop: list[str] | None
    ) -> dict[str, Any]:
        """See ``Reader.fields``."""
        further: dict[str, Any] = {"system": system} if system else {}
        further |= {"stop_sequences": stop} if stop else {}
        return {**rest, "messages": said, "max_tokens": most, **further}

    def event(self, data: Mapping[str, Any]) -> None:
        """See ``Reader.event``."""
        kind = data["type"]
        self._wrong(
            self._prompt is None and kind not in {"message_start", "ping"},
            f"{kind} before message_start",
        )
        match kind:
            case "message_start":
                message = data["message"]
                self._wrong(self._prompt is not None, "a second message_start")
                begun = message["stop_reason"] is None and not message["content"]
                self._wrong(not begun, "message_start with contents")
                self._answer.made_by(message)
                self._prompt = _prompt_of(message["usage"])
            case "content_block_start":
                self._wrong(bool(self._open), "a part begins while another one is open")
                block, index = data["content_block"], data["index"]
                self._opened(index, block["type"])
                if block["type"] == "tool_use":
                    self._answer.calls[index] = Made(block["id"], block["name"])
            case "content_block_delta":
                delta, index = data["delta"], data["index"]
                right = self._DELTAS.get(delta["type"]) == self._of_open(index, "a piece")
                self._wrong(not right, f"{delta['type']} in a part of another type")
                if delta["type"] == "input_json_delta":
                    self._answer.calls[index].arguments += delta["partial_json"]
                else:
                    self._block(delta)
            case "content_block_stop":
                self._closed(data["index"])
            case "message_delta":
                self._wrong(self._delta is not None, "a second message_delta")
                self._delta = data
                made = data["usage"]["output_tokens"]
                self._reason(data["delta"], self._prompt or 0, made)
            case "message_stop":
                self._wrong(self._delta is None, "message_stop before message_delta")
                self.ended = True
            case "error":
                raise StreamError(str(data["error"].get("message")))

    def _block(self, content: Mapping[str, Any]) -> None:
        if content.get("text"):
            self._add(PartKind.TEXT, content["text"])
        if content.get("thinking"):
            self._add(PartKind.REASONING, content["thinking"])

    def _reason(self, data: Mapping[str, Any], prompt: int, made: int) -> None:
        said, stop = data["stop_reason"], data.get("stop_sequence")
        shown = said if stop is None else f"{said}: {stop!r}"
        self._ends(self._REASONS.get(said, said), shown, prompt, made)

    def whole(self, data: Mapping[str, Any]) -> None:
        """See ``Reader.whole``."""
        kind = (data["type"], data["role"])
        self._wrong(kind != ("message", "assistant"), f"an answer of type and role {kind}")
        self._answer.made_by(data)
        for index, block in enumerate(data["content"]):
            self._block(block)
            if block["type"] == "tool_use":
                arguments = json.dumps(block["input"])
                self._answer.calls[index] = Made(block["id"], block["name"], arguments)
        usage = data["usage"]
        self._reason(data, _prompt_of(usage), usage["output_tokens"])


def _prompt_of(usage: Mapping[str, Any]) -> int:
    """All tokens of a prompt: ``input_tokens`` are those that were not kept."""
    kept = (usage.get(f"cache_{way}_input_tokens") or 0 for way in ("creation", "read"))
    return int(usage["input_tokens"]) + sum(kept)


class ResponsesReader(Reader):
    """Of OpenAI's Responses."""

    path: ClassVar[str] = "responses"
    _LAST: ClassVar[tuple[str, ...]] = ("completed", "incomplete", "failed")

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._events = 0
        self._number = -1
        self._texts: dict[int, str] = {}
        self._kinds: list[str] = []

    @staticmethod
    def fields(
        rest: dict[str, Any],
        said: list[Any],
        system: Any,
        most: int,
        stop: list[str] | None,  # noqa: ARG004 - it has no such field
    ) -> dict[str, Any]:
        """See ``Reader.fields``."""
        further = {"instructions": system} if system else {}
        return {**rest, "input": said, "max_output_tokens": most, **further}

    def event(self, data: Mapping[str, Any]) -> None:
        """See ``Reader.event``."""
        name, index = data["type"].removeprefix("response."), data.get("output_index", -1)
        first = ("created", "in_progress")
        if self._events < len(first):
            self._wrong(name != first[self._events], f"{name} in place of {first[self._events]}")
        self._events += 1
        number = data.get("sequence_number")
        if number is not None:
            self._wrong(number <= self._number, f"sequence_number {number} after {self._number}")
            self._number = number
        match name:
            case "created" | "in_progress":
                status = data["response"]["status"]
                self._wrong(status != "in_progress", f"{name} with the status {status}")
                self._answer.made_by(data["response"])
            case "output_item.added":
                item = data["item"]
                self._opened(index, item["type"])
                self._kinds.append(item["type"])
                if item["type"] == "function_call":
                    self._answer.calls[index] = Made(item["call_id"], item["name"])
            case "output_text.delta" | "reasoning_text.delta":
                self._of_open(index, "a piece")
                kind = PartKind.TEXT if name.startswith("output") else PartKind.REASONING
                self._texts[index] = self._texts.get(index, "") + data["delta"]
                self._add(kind, data["delta"])
            case "output_text.done" | "reasoning_text.done":
                said = self._texts.get(index, "")
                self._wrong(data["text"].split() != said.split(), "a text unlike its pieces")
            case "function_call_arguments.delta":
                self._of_open(index, "a piece")
                self._texts[index] = self._texts.get(index, "") + data["delta"]
            case "function_call_arguments.done":
                self._of_open(index, "arguments")
                said = self._texts.get(index, data["arguments"])
                self._wrong(said != data["arguments"], "arguments unlike their pieces")
                self._answer.calls[index].arguments = data["arguments"]
            case "output_item.done":
                self._closed(index)
            case "completed" | "incomplete" | "failed":
                self.ended = True
                status = data["response"]["status"]
                self._wrong(status != name, f"{name} with the status {status}")
                self._end(data["response"])
            case "error":
                raise StreamError(str(data.get("message")))

    def _end(self, response: Mapping[str, Any]) -> None:
        kinds = [item["type"] for item in response["output"]]
        self._wrong(bool(self._kinds) and kinds != self._kinds, f"{self._kinds} end as {kinds}")
        self._answer.made_by(response)
        said = "".join(texts(response))
        right = said.split() == self._answer.text.split()
        self._wrong(not right, "a last event with another text than the pieces")
        pieces = "".join(p.text for p in self._answer.parts if p.kind is PartKind.REASONING)
        right = _reasoning(response).split() == pieces.split()
        self._wrong(not right, "a last event with other reasoning than the pieces")
        status, why = response["status"], (response.get("incomplete_details") or {}).get("reason")
        shown = status if why is None else f"{status}: {why}"
        called = any(item["type"] == "function_call" for item in response["output"])
        reasons = {
            "completed": CALLED if called else FinishReason.STOP,
            "incomplete: max_output_tokens": FinishReason.LENGTH,
        }
        usage = response["usage"]
        prompt, made = usage["input_tokens"], usage["output_tokens"]
        self._ends(str(reasons.get(shown, shown)), shown, prompt, made)
        self._answer.usage["total_tokens"] = usage["total_tokens"]

    def whole(self, data: Mapping[str, Any]) -> None:
        """See ``Reader.whole``."""
        self._wrong(data["object"] != "response", f"an answer of type {data['object']}")
        if reasoning := _reasoning(data):
            self._add(PartKind.REASONING, reasoning)
        for text in texts(data):
            self._add(PartKind.TEXT, text)
        for index, item in enumerate(data["output"]):
            if item["type"] == "function_call":
                made = Made(item["call_id"], item["name"], item["arguments"])
                self._answer.calls[index] = made
        self._end(data)


def texts(response: Mapping[str, Any]) -> list[str]:
    """The texts of an answer's messages."""
    messages = (item for item in response["output"] if item["type"] == "message")
    return [part["text"] for item in messages for part in item["content"] if "text" in part]


def _reasoning(response: Mapping[str, Any]) -> str:
    """The reasoning of an answer: its texts or, where these are not given, its summary."""
    items = (item for item in response["output"] if item["type"] == "reasoning")
    parts = (part for item in items for part in item.get("content") or item["summary"])
    return "".join(part["text"] for part in parts)


READERS: Mapping[str, type[Reader]] = {
    kind.path: kind for kind in (MessagesReader, ResponsesReader)
}
"""Readers by the endpoint's name."""


def ending_of(endpoint: str, ended: bool, stop: str, *, called: bool = False) -> str:  # noqa: FBT001
    """What an answer's end is called.

    Args:
        ended: whether it ended before its limit.
        stop: the string that ended it; empty if it was a token.
        called: whether it has calls of tools.
    """
    if endpoint == ResponsesReader.path:
        return "completed" if ended else "incomplete: max_output_tokens"
    if stop:
        return f"stop_sequence: {stop!r}"
    return ("tool_use" if called else "end_turn") if ended else "max_tokens"


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    """The named events of a stream, with their data."""
    name, data = "", ""
    async for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            data += value.strip()
        elif not line and data:
            yield name, json.loads(data)
            name, data = "", ""
