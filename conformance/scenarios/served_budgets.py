"""Thinking budgets over HTTP: one ends in a row while others think on, or do not think at all.

The prompt opens the thinking. What the library's single stream forces ends it, in the same place:
reasoning is what comes before, text what comes after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Asked, Budget, Request, Schedule
from conformance.core.token_choice import Processor
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    one_by_one,
    produced,
    text_request,
    together,
)
from conformance.scenarios.marker_styles import PLAIN_THINKING
from conformance.scenarios.scenario import Brief
from conformance.scenarios.served_clients import ANSWER

ALONE, TOGETHER = "budgets_alone", "budgets"
_ITSELF, _LASTS = "closed by itself", "thinks on"
_STYLE = "json_tools"
_ENDPOINTS = _CHAT, _MESSAGES, _RESPONSES = ("", "messages", "responses")
_MARKERS = dict(zip(("thinking_start_token", "thinking_end_token"), PLAIN_THINKING, strict=True))
_UNREACHED = {"enable_thinking": True, "thinking_budget": 2}
# Requests that think without a budget, by fields of one meaning; and with one, but no thinking.
_UNFORCED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (_LASTS, _CHAT, {"reasoning_effort": "low"}),
    ("by effort", _CHAT, {"reasoning": {"effort": "medium"}}),
    ("by markers", _CHAT, {"enable_thinking": True, **_MARKERS}),
    ("message", _MESSAGES, {"enable_thinking": True, **_MARKERS}),
    ("response", _RESPONSES, {"reasoning": {"effort": "medium"}, **_MARKERS}),
    ("another response", _RESPONSES, {"reasoning_effort": "low"}),
    ("no thought", _CHAT, _UNREACHED),
    ("message without", _MESSAGES, _UNREACHED),
)


def budgets(brief: Brief) -> Iterator[Schedule]:
    """Budgets of several lengths beside none, all at once with joins, and one after the other."""
    if not any(map(brief.plays, (ALONE, TOGETHER))):
        return
    rows = _rows(brief)
    stream = brief.solo(rows[0], EngineOptions())
    own = stream.tokens
    asked = {token for row in rows for token in row.prompt}
    close = next((t for t in own[2:8] if own.count(t) == 1 and t not in asked), None)
    low, high = brief.tokens
    begin = next((t for t in range(low, high) if t not in asked and t not in own), None)
    if close is None or begin is None:
        raise Unsupported("no token of its own ends an answer's thinking: not supported")
    # An answer without logprobs is read from its text, in which special tokens are missing.
    vocab = high if stream.logprobs is None else stream.logprobs.shape[-1]
    special = range(high, vocab)
    dressed = [_thinking(row, begin, close, special) for row in rows]
    words = tuple(zip(PLAIN_THINKING, (begin, close), strict=True))
    options = EngineOptions(words=words, markers=_STYLE)
    yield one_by_one(ALONE, dressed[:4], options)
    lasting, *others = _ordered(dressed)
    arrivals = (
        together(lasting, *others[:3]),
        together(*others[3:8], when=produced(lasting.request_id, 2)),
        together(*others[8:], when=produced(lasting.request_id, 5)),
    )
    yield Schedule(TOGETHER, arrivals, options=replace(options, busy=True))


def _ordered(rows: Sequence[Request]) -> list[Request]:
    """The one that thinks on first, as others join it."""
    return sorted(rows, key=lambda row: row.request_id != _LASTS)


def _rows(brief: Brief) -> list[Request]:
    """The requests, without what opens their thinking; the first closes it before its budget."""
    lengths = (MEDIUM, SHORT, LONG, TWO)
    found = [text_request(brief, _ITSELF, MEDIUM, variant=90, max_tokens=ANSWER, asked=_asked(0))]
    found[0] = replace(found[0], budget=Budget(ANSWER // 2, (0,)))
    for at, tokens in enumerate((0, 3, 9, 1, 5, ANSWER + 9), 1):
        endpoint = _ENDPOINTS[at // 2 % 3]
        name = f"budget {tokens} {endpoint}".strip()
        row = text_request(
            brief,
            name,
            lengths[at % 4],
            variant=90 + at,
            max_tokens=ANSWER,
            asked=_asked(at, endpoint),
        )
        found.append(replace(row, budget=Budget(tokens, (0,))))
    for at, (name, endpoint, fields) in enumerate(_UNFORCED):
        most = 3 * ANSWER if name == _LASTS else ANSWER
        row = text_request(brief, name, lengths[at % 4], variant=110 + at, max_tokens=most)
        found.append(replace(row, asked=_asked(at, endpoint, fields)))
    return found


def _asked(at: int, endpoint: str = "", fields: dict[str, Any] | None = None) -> Asked:
    """Streamed or not, without logprobs: that of a forced token is another one's in mlx-vlm."""
    given = {"logprobs": False, **(fields or {})}
    return Asked(streamed=at % 2 == 0, endpoint=endpoint, fields=given)


def _thinking(row: Request, begin: int, close: int, special: Iterable[int]) -> Request:
    """The request with these markers, which it does not choose; one closes its thinking itself."""
    unsaid = (begin, *special) if row.request_id == _ITSELF else (begin, close, *special)
    bias = Processor("library", {"logit_bias": {str(token): -100.0 for token in unsaid}})
    opened = row.asked is not None and "thinking_budget" not in row.asked.fields
    return replace(
        row,
        prompt=(*row.prompt, begin) if opened else row.prompt,
        processors=(bias,),
        budget=replace(row.budget, forced=(close,)) if row.budget is not None else None,
    )


def forced(trace: Trace) -> bool:
    """Whether budgets ended some rows' thinking while others' went on."""
    budgets = {r.request_id: r.budget for r in trace.schedule.requests if r.budget}
    ended = [
        name for name, b in budgets.items() if b.forced[0] in trace.stream(name).tokens[b.tokens :]
    ]
    return bool(ended) and (trace.schedule.name == ALONE or 3 <= len(ended) < len(budgets))
