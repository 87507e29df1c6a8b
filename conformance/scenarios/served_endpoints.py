"""Endpoints of a server besides chats and completions: Anthropic's Messages, OpenAI's Responses.

Each is asked for the same as a chat, beside chats, streamed and in one piece: tokens, counts and
what ended an answer must be the same, in the endpoint's own words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Asked, Probe, Request, Schedule, Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    one_by_one,
    produced,
    text_request,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_clients import ANSWER
from conformance.scenarios.served_traffic import last_allowed, new_token, plain_words

_MESSAGES, _RESPONSES = "messages", "responses"
UNSTORED = "unstored_response"
"""A request that goes on from a response which the server was not to store, as an invalid call."""


def _endpoints(brief: Brief) -> list[Schedule]:
    """Answers of each endpoint that end in every way, and a mixture of all."""
    mixed = [
        row
        for endpoint in (_MESSAGES, _RESPONSES, "")
        for row in _rows(brief, endpoint, endpoint or "chat")[:2]
    ]
    return [
        *(_ending(brief, name, _rows(brief, name)) for name in (_MESSAGES, _RESPONSES)),
        at_once("mixed", *mixed, options=EngineOptions(busy=True)),
        at_once("stop_sequences", *_stopped(brief), options=EngineOptions(busy=True)),
        at_once("tools", *_with_tools(brief), options=EngineOptions(busy=True)),
        _followed(brief),
        *([_kept(brief)] if Capability.PREFIX_CACHING in brief.capabilities else []),
    ]


def _kept(brief: Brief) -> Schedule:
    """The same prompt for each endpoint, streamed and in one piece, most of which is kept."""
    rows = [
        row for endpoint in (_MESSAGES, _RESPONSES) for row in _rows(brief, endpoint, endpoint)[:2]
    ]
    prompt = brief.prompt(4 * LONG, 80)
    options = EngineOptions(prefix_caching=PrefixCaching())
    return one_by_one("kept", [replace(row, prompt=prompt) for row in rows], options)


def _with_tools(brief: Brief) -> Iterator[Request]:
    """Chats with a tool, of which the template writes the prompt's last token, or with none.

    Others offer the tool and forbid its use, so that nothing is written of it. So do messages.
    """
    for endpoint, count in (("", 3), (_MESSAGES, 2)):
        no: Any = {"type": "none"} if endpoint else "none"
        ways: tuple[dict[str, Any] | None, ...] = ({}, None, {"tool_choice": no})
        for at, row in enumerate(_rows(brief, endpoint, endpoint)[:count]):
            for way, choice in enumerate(ways):
                # Only a tool of this name is written by the template: what describes it.
                about = {"name": "written", "description": str(row.prompt[-1])}
                form = {"type": "object"}
                chats = {"type": "function", "function": {**about, "parameters": form}}
                tool = {**about, "input_schema": form} if endpoint else chats
                fields = {} if choice is None else {"tools": [tool], **choice}
                asked = Asked(streamed=(at + way) % 2 == 0, endpoint=endpoint, fields=fields)
                yield replace(row, request_id=f"{endpoint or 'r'}{at} {way}", asked=asked)


def _followed(brief: Brief) -> Schedule:
    """A chain of responses, beside which the server forgets one that it is not to store."""
    made = one_by_one("chained", list(_chained(brief)), EngineOptions())
    kinds = [kind for kind in brief.probes if kind == UNSTORED]
    return replace(made, probes=tuple(Probe(kind, produced("first", 1)) for kind in kinds))


def _chained(brief: Brief) -> Iterator[Request]:
    """Responses that go on from earlier ones, of which the server knows prompts and answers.

    Each goes on from the one before it, and the last one otherwise from the first.
    """
    found: dict[str, Request] = {}
    names = ("first", "second", "third", "fourth", "fifth", "otherwise")
    follows = {**dict(zip(names, ("", *names), strict=False)), names[-1]: names[0]}
    for at, (name, before) in enumerate(follows.items()):
        said = brief.prompt(SHORT + at, 85 + at)
        if before:
            tokens = brief.solo(found[before], EngineOptions()).tokens
            said = (*found[before].prompt, *tokens, *said)
        asked = Asked(streamed=at % 2 == 0, endpoint=_RESPONSES, follows=before)
        processors = (_drawn_from(brief, at),)
        found[name] = Request(name, said, ANSWER // 2, processors=processors, asked=asked)
        yield found[name]


def _rows(brief: Brief, endpoint: str, prefix: str = "r") -> list[Request]:
    """Streamed and in one piece, with options, with a system message, and a single token."""

    def row(
        at: int,
        length: int,
        most: int = ANSWER,
        system: int = 0,
        more: dict[str, Any] | None = None,
    ) -> Request:
        blocks = 2 if endpoint == _MESSAGES and system else 0
        asked = Asked(streamed=at % 2 == 0, endpoint=endpoint, system=system, blocks=blocks)
        sampler = None
        # Of mlx-vlm's single stream a penalty counts the prompt's last token alone, by the defect
        # penalty-of-last-token: no answer has a token of its prompt.
        processors = [_drawn_from(brief, at, set(brief.prompt(length, 80 + at)))]
        if more is not None and "temp" in more:
            sampler = Sampler("library", more)
        elif more is not None:
            processors.append(Processor("library", more))
        # Such answers have no logprobs, and no special tokens in their text.
        return text_request(
            brief,
            f"{prefix}{at}",
            length,
            variant=80 + at,
            max_tokens=most,
            sampler=sampler,
            processors=tuple(processors),
            asked=asked,
        )

    return [
        row(0, MEDIUM),
        row(1, LONG),
        row(2, SHORT, more={"repetition_penalty": 1.4, "repetition_context_size": 128}),
        row(3, SHORT, more={"presence_penalty": 1.5}),
        row(4, TWO, 1),
        # These leave the likeliest token alone.
        row(5, LONG, ANSWER // 2, system=MEDIUM, more={"temp": 1.5, "top_k": 1}),
        row(6, LONG, ANSWER // 2, system=SHORT, more={"temp": 2.0, "top_p": 0.001}),
        row(7, MEDIUM, more={"frequency_penalty": 0.9, "frequency_context_size": 30}),
    ]


def _drawn_from(brief: Brief, at: int, unsaid: Collection[int] = ()) -> Processor:
    """Plain words, other ones for each request."""
    low, high = brief.tokens
    return plain_words(token for token in range(low + at, high, 8) if token not in unsaid)


def _ending(brief: Brief, name: str, rows: list[Request]) -> Schedule:
    """Two of the answers end by a token."""
    tokens = [brief.solo(row, EngineOptions()).tokens for row in rows]
    others = {token for own in tokens[2:] for token in own}
    ends = tuple((new_token(own, others),) for own in tokens[:2])
    given = [
        replace(row, stop=tuple(sorted(ends, key=lambda end: (*own, *end).index(end[0]))))
        for row, own in zip(rows, tokens, strict=True)
    ]
    return at_once(name, *given, options=EngineOptions(busy=True, stop=ends))


def _stopped(brief: Brief) -> Iterator[Request]:
    """Answers that end by the earliest of two stop sequences, the later of which comes first.

    Or at their limits; or have one that never comes.
    """
    for at, row in enumerate(_rows(brief, _MESSAGES)[:4]):
        tokens = tuple(brief.solo(row, EngineOptions()).tokens)
        if at >= 2:
            yield replace(row, stop=((tokens[0], *tokens[-1:0:-1][:1], tokens[0]),))
            continue
        given = replace(row, stop=(tokens[8:11], tokens[3:5]))
        yield given
        yield last_allowed(given, tokens)


def _several(trace: Trace) -> bool:
    """Whether several answers were on their way at once."""
    return any(len(step.in_stage(Stage.DECODE)) >= 2 for step in trace.steps)


def _ended(trace: Trace) -> bool:
    """Whether answers ended by a token or a string, and others by their limits."""
    reasons = {trace.stream(r.request_id).finish_reason for r in trace.schedule.requests}
    return reasons >= {FinishReason.STOP, FinishReason.LENGTH}


SERVED_ENDPOINTS = Scenario(
    "served_endpoints",
    305,
    "messages and responses, beside chats",
    frozenset({Capability.SERVED, Capability.ENDPOINTS, Capability.PROCESSORS, Capability.STOP}),
    _endpoints,
    (
        Witness("several answers at once", _several),
        Witness("answers that end in both ways", _ended).shown_in(_MESSAGES, _RESPONSES),
    ),
)
