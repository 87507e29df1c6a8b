"""Answers with reasoning and calls of tools, by every style of markers that a library knows.

A tiny model says nothing that has a meaning, but it is known what it says: the text of each token
is chosen such that an answer consists of reasoning, text and calls. Each request may choose its
tokens from a few that no other one has, and each of these once, so all answers are of one
tokenizer and decode in one batch. Markers are cut by tokens, as they are by a model's own.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Asked, Request, Schedule, Stage
from conformance.core.token_choice import Processor
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import MEDIUM, SHORT, gone, text_request, together
from conformance.scenarios.marker_styles import CALLS, PLAIN_THINKING, STYLES, MarkerStyle
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_budgets import ALONE, TOGETHER, budgets, forced

# Added to the logits of the tokens that a request may choose, and of the one that ends it; taken
# from those that were chosen. So the end comes after all others, and none comes twice.
_CHOSEN, _ENDING, _TWICE = 100.0, 60.0, 80.0
_AT_ONCE = 5  # clients; a server may reset the connections of more
_IN_A_CALL = "in a call"
# Styles for stop strings in reasoning: a plain one, markers of several tokens, states of their own,
# and calls without a marker at their end.
_STOPPED = ("json_tools", "gemma4", "kimi_k3", "muse_spark", "mistral")
# For other endpoints: calls of which a stream has the begin before their end, and others.
_ELSEWHERE = ("json_tools", "kimi_k2")
_ASKED_ELSEWHERE = ("all", "two", "all cut in a call", "broken off")
_TRIES = 400  # ways to cut a text so that no token has the text of another one


class _Part(enum.StrEnum):
    """The schedules of a style."""

    WHOLE = "whole"
    CUT = "cut"
    ENDED = "ended"
    STOPPED = "stopped"
    MESSAGES = "messages"
    RESPONSES = "responses"
    UNSTREAMED = "unstreamed_responses"


_ENDPOINTS = (_Part.MESSAGES, _Part.RESPONSES, _Part.UNSTREAMED)
_STYLES = {_Part.STOPPED: _STOPPED, **dict.fromkeys(_ENDPOINTS, _ELSEWHERE)}
"""The styles of the schedules that not all styles have."""


@dataclass(frozen=True)
class _Said:
    """The texts of an answer's tokens, and where a limit may cut it.

    Attributes:
        name: of the request.
        texts: of its tokens, in order.
        cuts: by name, numbers of tokens after which a limit cuts the answer.
        stops: by name, the tokens of a stop string, by their places.
        ended: whether its end is a token.
        opened: whether its reasoning is begun by the prompt.
        part: the schedule that has it to its end.
    """

    name: str
    texts: tuple[str, ...]
    cuts: dict[str, int]
    stops: dict[str, slice] = field(default_factory=dict)
    ended: bool = False
    opened: bool = False
    part: _Part = _Part.WHOLE


class _Cutting:
    """Cuts texts into tokens, all of which differ from each other."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng((seed, _TRIES))
        self._taken: set[str] = set()

    def cut(self, text: str, count: int) -> list[str]:
        """The text in so many pieces.

        Raises:
            Unsupported: each way has the text of another token.
        """
        for _ in range(_TRIES):
            at = sorted(self._rng.choice(len(text) - 1, count - 1, replace=False) + 1)
            ends = itertools.pairwise((0, *(int(place) for place in at), len(text)))
            found = [text[begin:end] for begin, end in ends]
            names = {piece.strip() for piece in found} - {""}
            if len(names) == count and not self._taken & names:
                self._taken |= names
                return found
        raise Unsupported(f"{text!r} cannot be cut into tokens of their own: not supported")


def _schedules(brief: Brief) -> list[Schedule]:
    """For each style: answers with whole calls, with calls that limits cut, or the end.

    And with stop strings: those in a call break it off, as the end does. Other endpoints than chats
    are asked in a few styles.
    """
    found = []
    for style in STYLES.values():
        parts = [part for part in _Part if style.name in _STYLES.get(part, STYLES)]
        if Capability.ENDPOINTS not in brief.capabilities:
            parts = [part for part in parts if part not in _ENDPOINTS]
        names = {f"{style.name}_{part}": part for part in parts}
        if brief.library in style.libraries and any(map(brief.plays, names)):
            rows, options = _of_style(brief, style)
            found += [_in_turns(name, rows[part], options) for name, part in names.items()]
    if Capability.BUDGETS in brief.capabilities:
        found += budgets(brief)
    return found


def _in_turns(name: str, rows: Sequence[Request], options: EngineOptions) -> Schedule:
    """A few clients at once, then a few more."""
    groups = [rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE)]
    later = [
        together(*group, when=gone(before[0].request_id))
        for before, group in itertools.pairwise(groups)
    ]
    options = replace(options, busy=name.endswith(_Part.WHOLE))
    return Schedule(name, (together(*groups[0]), *later), options=options)


def _of_style(brief: Brief, style: MarkerStyle) -> tuple[dict[_Part, list[Request]], EngineOptions]:
    """The requests whose answers have markers of this style, streamed and not."""
    said = list(_answers(style, _Cutting(brief.seed)))
    prompts = [
        text_request(brief, one.name, (MEDIUM, SHORT)[at % 2], variant=60 + at)
        for at, one in enumerate(said)
    ]
    low, high = brief.tokens
    asked = {token for request in prompts for token in request.prompt}
    free = [token for token in range(low, high) if token not in asked]
    needed = sum(len(one.texts) + one.opened for one in said) + 1
    if len(free) < needed:
        raise Unsupported(
            f"{len(free)} tokens are in no prompt, {needed} are needed: not supported"
        )
    end, *free = free
    rows: dict[_Part, list[Request]] = {part: [] for part in _Part}
    words: list[tuple[str, int]] = []
    for one, asking in zip(said, prompts, strict=True):
        prompt = asking
        if one.opened:
            opening, *free = free
            words.append((style.thinking[0], opening))
            prompt = replace(asking, prompt=(*asking.prompt, opening))
        own, free = free[: len(one.texts)], free[len(one.texts) :]
        request = _choosing(prompt, own, end if one.ended else None)
        tokens = brief.solo(request, EngineOptions()).tokens[: len(own)]
        if len({*tokens}) < len(own):
            raise Unsupported(f"the answer to {one.name!r} repeats a token: not supported")
        words += zip(one.texts, tokens, strict=True)
        for part, row, place in _asked(request, one):
            stop = ((end,),) if place is None else ((end,), tokens[place])
            rows[part].append(replace(row, stop=stop))
    for part, row in _elsewhere([row for own in rows.values() for row in own]):
        rows[part].append(row)
    options = EngineOptions(busy=True, words=tuple(words), markers=style.name, stop=((end,),))
    return rows, options


def _elsewhere(rows: Sequence[Request]) -> Iterator[tuple[_Part, Request]]:
    """Some of the requests, to the endpoints that do not chat; messages are asked to think."""
    names = {f"{name} {way}" for name in _ASKED_ELSEWHERE for way in ("streamed", "whole")}
    for endpoint in (_Part.MESSAGES, _Part.RESPONSES):
        fields = {"enable_thinking": True} if endpoint is _Part.MESSAGES else {}
        for row in (row for row in rows if row.request_id in names):
            assert row.asked is not None
            asked = replace(row.asked, endpoint=str(endpoint), fields=fields)
            unstreamed = endpoint is _Part.RESPONSES and not asked.streamed
            own = replace(row, request_id=f"{endpoint}: {row.request_id}", asked=asked)
            yield _Part.UNSTREAMED if unstreamed else endpoint, own


def _choosing(request: Request, tokens: Sequence[int], end: int | None) -> Request:
    """The request, which may only choose these tokens, each of them once, and then its end."""
    bias = {str(token): _CHOSEN for token in tokens}
    if end is not None:
        bias[str(end)] = _ENDING
    processors = (
        Processor("library", {"logit_bias": bias}),
        Processor("library", {"presence_penalty": _TWICE}),
    )
    most = len(tokens) + (0 if end is None else 2)
    stop = () if end is None else ((end,),)
    return replace(request, max_tokens=most, processors=processors, stop=stop)


def _asked(request: Request, said: _Said) -> Iterator[tuple[_Part, Request, slice | None]]:
    """The request to its end, streamed and in one piece, and cut by limits and stop strings.

    The last is the place of the stop string's tokens.
    """

    def row(name: str, most: int, *, streamed: bool) -> Request:
        asked = Asked(streamed=streamed, tools=True)
        return replace(request, request_id=f"{said.name}{name}", max_tokens=most, asked=asked)

    for streamed in (True, False):
        way = " streamed" if streamed else " whole"
        yield said.part, row(way, request.max_tokens, streamed=streamed), None
        for at, (name, most) in enumerate(said.cuts.items()):
            if "call" in name:
                yield _Part.CUT, row(f" cut {name}{way}", most, streamed=streamed), None
            elif streamed == (at % 2 == 0):
                yield said.part, row(f" cut {name}{way}", most, streamed=streamed), None
        for name, place in said.stops.items():
            part = _Part.ENDED if name == _IN_A_CALL else _Part.STOPPED
            stopped = row(f" stopped {name}{way}", request.max_tokens, streamed=streamed)
            yield part, stopped, place


def _answers(style: MarkerStyle, cutting: _Cutting) -> Iterator[_Said]:
    """Reasoning, text, a call and text; two calls; a call that is not closed; opened reasoning."""
    before, after = style.thinking
    one, two, three, four, five = CALLS
    begin = [*cutting.cut(before, 2), " deep"]
    thought = [*begin, " snow", " fell", *cutting.cut(after, 2)]
    said = [*thought, " over", " town"]
    opening, (section,) = cutting.cut(style.opening, 2), style.sections([one])
    call = [*opening, *cutting.cut(section, 4)]
    rest = [*cutting.cut(style.closing, 2), " all", " night"] if style.closing else []
    cuts = {
        "in a marker": 1,
        "in reasoning": len(begin) + 1,
        "in the opening": len(said) + 1,
        "in a call": len(said) + len(opening) + 1,
        "late in a call": len(said) + len(call) - 1,
    }
    stops = {
        "in reasoning": slice(len(begin), len(begin) + 2),
        "in the text": slice(len(thought), len(said)),
        _IN_A_CALL: slice(len(said) + len(opening) + 1, len(said) + len(call) - 1),
    }
    if rest:
        stops["after a call"] = slice(len(said) + len(call) + len(rest) - 1, None)
    yield _Said("all", (*said, *call, *rest), cuts, stops)
    both = [" both"]
    for section in style.sections([two, three]):
        before_it = len(both)
        both += [*cutting.cut(style.opening, 2), *cutting.cut(section, 4)]
        both += cutting.cut(style.closing, 2) if style.closing else []
    yield _Said("two", tuple(both), {"in the last call": before_it + 4}, ended=True)
    (section,) = style.sections([four])
    texts = (" then", *cutting.cut(style.opening, 1), *cutting.cut(section, 3))
    yield _Said("unclosed", texts, {}, ended=True, part=_Part.ENDED)
    (section,) = style.sections([five])
    begun = cutting.cut(section[: len(section) // 2], 2)
    texts = (" but", *cutting.cut(style.opening, 2), *begun)
    yield _Said("broken off", texts, {}, ended=True, part=_Part.ENDED)
    if style.thinking == PLAIN_THINKING:
        texts = (" rain", " and", *cutting.cut(after, 2), " thaw", " came")
        yield _Said("opened", texts, {"in reasoning": 2}, opened=True)


def _ended(trace: Trace) -> bool:
    """Whether answers ended by a token, and others by their limits."""
    reasons = {trace.stream(r.request_id).finish_reason for r in trace.schedule.requests}
    return reasons >= {FinishReason.STOP, FinishReason.LENGTH}


def _several(trace: Trace) -> bool:
    """Whether several answers were on their way at once."""
    return any(len(step.in_stage(Stage.DECODE)) >= 2 for step in trace.steps)


SERVED_TOOLS = Scenario(
    "served_tools",
    395,
    "reasoning and calls of tools in every style of markers, cut by limits and ended by tokens",
    frozenset({Capability.SERVED, Capability.MARKERS, Capability.PROCESSORS, Capability.STOP}),
    _schedules,
    (
        Witness("several answers at once", _several).shown_in("*_whole"),
        Witness("answers that end in both ways", _ended).shown_in("*_whole"),
        Witness(
            "thinking that a budget ends, beside other thinking",
            forced,
            needs=frozenset({Capability.BUDGETS}),
        ).shown_in(ALONE, TOGETHER),
    ),
)
