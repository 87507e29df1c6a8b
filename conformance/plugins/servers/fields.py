"""A request as a question to a server: messages, a schema for the answer, a tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from conformance.core.schedule import Client, Request
from conformance.core.token_choice import OF_SERVER, Sampler
from conformance.plugins.servers.asking import Question
from conformance.scenarios.marker_styles import TOOL_NAME

_FORBIDDEN = ("none", {"type": "none"})  # in chats, in messages
_VALUES = (1, 2)
_SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": list(_VALUES)}},
    "required": ["a"],
    "additionalProperties": False,
}
_NAMED = {"name": TOOL_NAME, "description": "looks"}
_PARAMETERS = {
    "type": "object",
    "properties": {"at": {"type": "string"}, "count": {"type": "integer"}},
}
# By endpoint; empty: chats.
_TOOLS: dict[str, dict[str, Any]] = {
    "": {"type": "function", "function": {**_NAMED, "parameters": _PARAMETERS}},
    "messages": {**_NAMED, "input_schema": _PARAMETERS},
    "responses": {"type": "function", **_NAMED, "parameters": _PARAMETERS},
}


def question(
    request: Request,
    model: str,
    text: Callable[[Sequence[int]], str],
    *,
    streamed: bool,
    **more: object,
) -> Question:
    """The question for a request.

    Args:
        model: the server's name for the model.
        text: gives the text of tokens.
        more: further fields, such as those for logprobs.
    """
    asked = request.asked
    chat = asked is None or asked.chat
    body: dict[str, Any] = {
        "model": model,
        "input": messages(request, text) if chat else text(request.prompt),
        "max_tokens": request.max_tokens,
        "temperature": 0.0,
        "stream": streamed,
        **more,
    }
    if streamed:
        body["stream_options"] = {"include_usage": True}
    if request.stop:
        body["stop"] = [text(sequence) for sequence in request.stop]
    if request.sampler is not None:
        body |= sampled(request.sampler)
    for processor in request.processors:
        body |= processor.args
    body |= further(request)
    if "max_completion_tokens" in body:  # the later name of the same limit
        del body["max_tokens"]
    unread = asked is not None and asked.unread
    client = asked.client if asked is not None else Client.OPENAI
    endpoint = asked.endpoint if asked is not None else ""
    return Question(
        request.request_id,
        body,
        chat=chat,
        unread=unread,
        client=client,
        endpoint=endpoint,
        tenant=request.tenant,
    )


def sampled(sampler: Sampler) -> dict[str, Any]:
    """The fields for a sampler: a server's own, or the library's without a seed."""
    if sampler.kind == OF_SERVER:
        return sampler.args
    args = dict(sampler.args)
    if "temp" in args:
        given = args.pop("temp")
        args["temperature"] = int(given) if given == int(given) else given  # many write 1 for 1.0
    return args


def messages(request: Request, text: Callable[[Sequence[int]], str]) -> list[dict[str, Any]]:
    """The prompt as messages, with the system message first if there is one."""
    system = request.asked.system if request.asked is not None else 0
    fields = request.asked.fields if request.asked is not None else {}
    tools = "tools" in fields and fields.get("tool_choice") not in _FORBIDDEN
    arguments = fields.get("chat_template_kwargs", {})
    if tools or arguments.get("writes_ending", bool(arguments)):
        # The chat template writes the last token.
        return [{"role": "user", "content": text(request.prompt[:-1])}]
    if request.asked is not None and request.asked.follows is not None:
        # What is said before and after it is joined as it is.
        return [{"role": "user", "content": f" {text(request.prompt)} "}]
    if request.asked is not None and request.asked.turns:
        return _turns(request, text)
    if not system:
        return [{"role": "user", "content": text(request.prompt)}]
    assert request.asked is not None
    count = request.asked.blocks
    size = -(-system // max(count, 1))
    # Templates need not put a blank between messages, nor servers between blocks; and some servers
    # take away the one at the end of the last block.
    blocks = [
        f"{text(request.prompt[at : min(at + size, system)])} " for at in range(0, system, size)
    ]
    parts = [{"type": "text", "text": block} for block in blocks]
    said = text(request.prompt[system:])
    return [
        {"role": "system", "content": parts if count else blocks[0]},
        {"role": "user", "content": f" {said}" if count else said},
    ]


def _turns(request: Request, text: Callable[[Sequence[int]], str]) -> list[dict[str, Any]]:
    """The prompt as a conversation: messages of the user and the assistant in turn."""
    assert request.asked is not None
    ends = [0, *itertools.accumulate(request.asked.turns)]
    # As with a system message, none relies on a template or a server for the blank between them.
    said = [f"{text(request.prompt[a:b])} " for a, b in itertools.pairwise(ends)]
    last, roles = request.prompt[ends[-1] :], itertools.cycle(("user", "assistant"))
    found = [{"role": role, "content": one} for role, one in zip(roles, said, strict=False)]
    half = len(last) // 2
    parts = [
        {"type": "text", "text": t} for t in (f"{text(last[:half])} ", f" {text(last[half:])}")
    ]
    return [*found, {"role": "user", "content": parts}]


def further(request: Request) -> dict[str, Any]:
    """Fields for anything asked for besides tokens, and fields that are passed unchanged."""
    asked = request.asked
    found = dict(asked.fields) if asked is not None else {}
    if asked is not None and asked.schema:
        schema = {"name": "small", "schema": _SCHEMA, "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    if asked is not None and asked.tools:
        found["tools"] = [_TOOLS[asked.endpoint]]
    return found


def fits_schema(text: str) -> bool:
    """Whether an answer fits the schema."""
    try:
        return json.loads(text) in [{"a": value} for value in _VALUES]
    except ValueError:
        return False
