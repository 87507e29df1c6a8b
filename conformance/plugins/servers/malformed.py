"""Requests that a server must refuse with a 4xx status and a message, and keep working."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx2

from conformance.core.http_clients import client
from conformance.core.trace import ProbeResult
from conformance.plugins.servers.asking import Question
from conformance.plugins.servers.endpoints import ResponsesReader
from conformance.scenarios.served_endpoints import UNSTORED
from conformance.scenarios.served_options import BEYOND, CONTEXT

_SECONDS = 30.0
_HUGE = 32 * 2**20  # bytes
_CLIENT_ERROR = range(400, 500)

Body = dict[str, Any]
Change = Callable[[Body], Body | bytes]


def _with(**fields: Any) -> Change:
    return lambda body: {**body, **fields}


def _without(name: str) -> Change:
    return lambda body: {key: value for key, value in body.items() if key != name}


def _message(content: Any, *before: Any) -> Change:
    return _with(messages=[{"role": "user", "content": one} for one in (*before, content)])


def _image(url: str) -> Change:
    return _message([{"type": "image_url", "image_url": {"url": url}}])


KINDS: Mapping[str, Change] = {
    "no_json": lambda _: b"{",
    "invalid_utf8": lambda _: b'{"model": "\xff\xfe"}',
    "json_list": lambda _: b"[1, 2]",
    "no_messages": _without("messages"),
    "messages_no_list": _with(messages="t1"),
    "message_no_object": _with(messages=[1]),
    # After a word: some tokenizers have no token for a number alone, which is another defect.
    "content_number": _message(5, "t1"),
    "empty_content": _message(""),
    "zero_max_tokens": _with(max_tokens=0),
    "negative_max_tokens": _with(max_tokens=-1),
    "max_tokens_text": _with(max_tokens="many"),
    # The plain request has a prompt of two tokens.
    BEYOND: _with(max_tokens=CONTEXT - 1),
    UNSTORED: _with(),
    "temperature_text": _with(temperature="hot"),
    "temperature_negative": _with(temperature=-1.0),
    "top_p_over_one": _with(top_p=1.5),
    "stop_number": _with(stop=5),
    "stop_of_numbers": _with(stop=[5]),
    "logit_bias_text": _with(logit_bias={"1": "much"}),
    "stream_text": _with(stream="yes"),
    "unknown_model": _with(model="/no/such/model"),
    "no_image": _image("data:image/png;base64,AAAA"),
    "no_base64": _image("data:image/png;base64,%%%"),
    "huge_body": lambda body: {
        **body,
        "messages": [{"role": "user", "content": "t1 " * 3}],
        "padding": "x" * _HUGE,
        "max_tokens": -1,
    },
}


def probe(url: str, kind: str, plain: Question) -> ProbeResult:
    """Send the malformed request ``kind``, made from a plain one, and report the reply."""
    body = {**plain.body, "messages": plain.body["input"], "stream": False}
    del body["input"]
    made = KINDS[kind](body)
    content = made if isinstance(made, bytes) else json.dumps(made).encode()
    headers = {"Content-Type": "application/json"}
    try:
        with client(_SECONDS) as asking:
            if kind == UNSTORED:
                answer = _unstored(asking, f"{url}/v1/responses", plain)
            else:
                place = f"{url}/v1/chat/completions"
                answer = asking.post(place, content=content, headers=headers)
    except httpx2.HTTPError as error:
        return ProbeResult(kind, f"no answer: {type(error).__name__}: {error}")
    if answer.status_code == httpx2.codes.OK:
        return ProbeResult(kind, None)
    if answer.status_code in _CLIENT_ERROR and answer.text.strip():
        return ProbeResult(kind, f"refused: HTTP {answer.status_code}: {answer.text[:200]}")
    return ProbeResult(kind, f"HTTP {answer.status_code}: {answer.text[:200] or 'no message'}")


def _unstored(asking: httpx2.Client, place: str, plain: Question) -> httpx2.Response:
    """The answer to a request that goes on from a response which was not to be stored."""
    body = replace(plain, endpoint=ResponsesReader.path).sent
    first = asking.post(place, json={**body, "store": False})
    if first.status_code != httpx2.codes.OK:
        return first
    return asking.post(place, json={**body, "previous_response_id": first.json()["id"]})
