"""Answers in many scripts, whose characters have several tokens: streamed, in one piece, cut.

Each answer spells characters of one to four bytes, emoji with joiners and letters with combining
marks: see ``pieces``. Its text must be what the library's own single stream says, and streams must
have the text of answers in one piece. What becomes of a character that the limit cuts is up to the
library: its server must do as its single stream does.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Asked, Request, Schedule, Stage
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import MEDIUM, SHORT, at_once
from conformance.scenarios.pieces import PieceKind, bytes_of, spelled
from conformance.scenarios.scenario import Brief, Scenario, Witness

_ROWS = 5
_LIMIT = 32  # tokens, of which the last few may be left out to cut a character
_WORDS = 24  # different tokens of prompts
_VARIANTS = 60
_STOPPED = 2  # at least so many answers end by a stop string
_DIFFERENT = 0.6  # of the tokens of an answer; a loop spells little
_CUT = "�"
_NEVER = "QQQ"
_INDENTED = "\n    if"  # how indented code begins
_INDENTS = "mlx_lm"  # the library whose server is asked for it


@dataclass(frozen=True)
class Spelled:
    """A request of the longest limit, its single stream, and the bytes of each token."""

    request: Request
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]

    def text(self, count: int) -> str:
        """The text of the first tokens; a character that is cut is replaced."""
        return b"".join(self.pieces[:count]).decode(errors="replace")


def _texts(brief: Brief) -> list[Schedule]:
    requests = list(_requests(brief))
    schedules = []
    for kind in PieceKind:
        rows, options = _spelled(brief, kind, requests)
        schedules.append(at_once(kind.value, *_limited(brief, rows), options=options))
        if kind is PieceKind.BYTE_LEVEL:
            schedules.append(at_once("stops", *_stopping(rows), options=options))
            ends = tuple((_end(row),) for row in rows[:2])
            options = replace(options, stop=ends)
            schedules.append(at_once("ends", *_ending(rows, ends), options=options))
    return schedules


def _requests(brief: Brief) -> Iterator[Request]:
    """Requests whose answers have many different tokens.

    Raises:
        Unsupported: too few answers have them.
    """
    low, high = brief.tokens
    found = 0
    for variant in range(_VARIANTS):
        rng = np.random.default_rng((brief.seed, variant))
        length = (MEDIUM, SHORT, MEDIUM + SHORT)[variant % 3]
        prompt = tuple(int(t) for t in rng.integers(low, low + _WORDS, length))
        request = Request(f"r{found}", prompt, _LIMIT)
        tokens = brief.solo(request, EngineOptions()).tokens
        ordinary = all(low <= token < high for token in tokens)
        if ordinary and len(set(tokens)) >= _DIFFERENT * _LIMIT:
            yield request
            found += 1
        if found == _ROWS:
            return
    raise Unsupported(f"of {_VARIANTS} answers {found} have many different tokens: not supported")


def _spelled(
    brief: Brief, kind: PieceKind, requests: Sequence[Request]
) -> tuple[list[Spelled], EngineOptions]:
    low, _ = brief.tokens
    answers = [brief.solo(request, EngineOptions()).tokens for request in requests]
    first = _INDENTED if brief.library == _INDENTS else ""
    words = spelled(kind, brief.tokens, range(low, low + _WORDS), answers, first=first)
    bytes_by_token = {token: bytes_of(kind, [piece]) for piece, token in words}
    rows = [
        Spelled(request, tokens, tuple(bytes_by_token[token] for token in tokens))
        for request, tokens in zip(requests, answers, strict=True)
    ]
    return rows, EngineOptions(busy=True, words=words, pieces=kind)


def _limited(brief: Brief, rows: Sequence[Spelled]) -> Iterator[Request]:
    """Limits that cut a character, streamed and in one piece; one answer in every way.

    That one has a line's end as a token, if any has: a piece of a stream without a letter.
    Some have a stop string that seems to begin within the answer, and does not come.
    """
    for at, row in enumerate(rows):
        cut = [n for n in range(_LIMIT // 2, _LIMIT) if row.text(n).endswith(_CUT)]
        most = cut[-1] if cut and at else _LIMIT
        fields = {"stop": [f"{_begun(row)}{_NEVER}"]} if at % 2 else {}
        asked = Asked(streamed=at % 3 != 1, fields=fields)
        yield replace(row.request, max_tokens=most, asked=asked)
    lined = next((row for row in rows if b"\n" in row.pieces), rows[-1])
    ways = {"again": Asked(streamed=False)}
    if Capability.COMPLETIONS in brief.capabilities:
        ways["completion"] = Asked(chat=False)
    if Capability.ENDPOINTS in brief.capabilities:
        ways |= {name: Asked(endpoint=name) for name in ("messages", "responses")}
    for name, asked in ways.items():
        request = (rows[0] if name == "completion" else lined).request
        yield replace(request, request_id=name, max_tokens=_LIMIT, asked=asked)


def _begun(row: Spelled) -> str:
    """A character of an answer of which a token is a part, late in the answer."""
    for count in range(_LIMIT - 4, 0, -1):
        before, cut, after = (row.text(n) for n in (count, count + 1, count + 2))
        if _CUT not in (before[-1:], after[len(before) : len(before) + 1]) and cut.endswith(_CUT):
            return after[len(before) :][:1]
    return row.text(_LIMIT)[:1]


def _stopping(rows: Sequence[Spelled]) -> Iterator[Request]:
    """Stop strings that are not made of tokens, alone and among others; one that never comes.

    Raises:
        Unsupported: hardly an answer has a place for one.
    """
    found = [(row, *place) for row in rows[:-1] if (place := _stop(row)) is not None]
    if len(found) < _STOPPED:
        raise Unsupported(f"{len(found)} answers have a place for a stop string: not supported")
    for at, (row, stop, count) in enumerate(found):
        sequence = row.tokens[count - 1 : count]
        strings = [stop] if at == 0 else [_NEVER, stop, f"{stop}{_NEVER}"]
        asked = Asked(streamed=at % 3 != 1, fields={"stop": strings})
        yield replace(row.request, stop=(sequence,), asked=asked)
        if at == 1:
            # The same strings as one, which does not come.
            asked = Asked(streamed=False, fields={"stop": ["".join(strings)]})
            yield replace(row.request, request_id="joined", asked=asked)
    asked = Asked(fields={"stop": [_NEVER]})
    yield replace(rows[-1].request, asked=asked)


def _stop(row: Spelled) -> tuple[str, int] | None:
    """A string that is not made of whole tokens, and the number of tokens until it is said."""
    for count in range(3, _LIMIT):
        begun, said = row.text(count - 2), row.text(count)
        if row.tokens[count - 1] in row.tokens[: count - 1]:
            continue
        if said[-1] in {_CUT, " "}:  # a server cannot know yet what it will be
            continue
        for end in range(len(said), len(begun) + 1, -1):
            stop = said[max(0, len(begun.rstrip(_CUT)) - 1) : end]
            new = stop.strip() and _CUT not in stop and stop not in row.text(count - 1)
            # Some servers leave blanks out at the end of an answer.
            if new and said.partition(stop)[0][-1:].strip() and not _aligned(row, stop, count):
                return stop, count
    return None


def _aligned(row: Spelled, stop: str, count: int) -> bool:
    """Whether a stop string is the text of whole tokens."""
    own = stop.encode()
    return any(b"".join(row.pieces[begin:count]) == own for begin in range(count))


def _end(row: Spelled) -> int:
    """A token that ends an answer in mid-character, where it is first said."""
    cut = [
        n
        for n in range(4, _LIMIT)
        if row.text(n).endswith(_CUT) and row.tokens[n] not in row.tokens[:n]
    ]
    return row.tokens[cut[0]] if cut else row.tokens[_LIMIT // 2]


def _ending(rows: Sequence[Spelled], ends: tuple[tuple[int], ...]) -> Iterator[Request]:
    """Answers that end by a token: in mid-character, and while a stop string may have begun."""
    for at, row in enumerate(rows):
        count = next((n for n, token in enumerate(row.tokens) if (token,) in ends), _LIMIT)
        held = row.text(count).rstrip(_CUT)[-1:] + _NEVER
        fields = {"stop": [held]} if at % 2 == 0 and held[0].strip() else {}
        asked = Asked(streamed=at % 3 != 1, fields=fields)
        yield replace(row.request, stop=ends, asked=asked)


def _several(trace: Trace) -> bool:
    """Whether several answers were on their way at once."""
    return any(len(step.in_stage(Stage.DECODE)) >= _STOPPED for step in trace.steps)


def _cut_at_limit(trace: Trace) -> bool:
    """Whether a limit cut a character."""
    options = trace.schedule.options
    pieces = {token: piece for piece, token in options.words}
    for request in trace.schedule.requests:
        stream = trace.stream(request.request_id)
        said = bytes_of(options.pieces, [pieces[token] for token in stream.tokens])
        if (
            stream.finish_reason is FinishReason.LENGTH
            and said.decode(errors="replace")[-1:] == _CUT
        ):
            return True
    return False


def _marks(trace: Trace) -> bool:
    """Whether answers of both ways have letters that normalisation would change."""
    options = trace.schedule.options
    pieces = {token: piece for piece, token in options.words}
    ways = set()
    for request in trace.schedule.requests:
        tokens = trace.stream(request.request_id).tokens
        said = bytes_of(options.pieces, [pieces[token] for token in tokens]).decode(
            errors="replace"
        )
        if not unicodedata.is_normalized("NFC", said):
            ways.add(request.asked is None or request.asked.streamed)
    return ways == {True, False}


def _stopped(trace: Trace) -> bool:
    """Whether answers ended before their limits, and others by them."""
    reasons = {trace.stream(r.request_id).finish_reason for r in trace.schedule.requests}
    return reasons >= {FinishReason.STOP, FinishReason.LENGTH}


SERVED_TEXT = Scenario(
    "served_text",
    367,
    "characters of several tokens in many scripts, cut by pieces, limits, stops and ends",
    frozenset({Capability.SERVED, Capability.PIECES}),
    _texts,
    (
        Witness("several streams at once", _several),
        Witness("a character that the limit cut", _cut_at_limit).shown_in(*PieceKind),
        Witness("letters with marks, streamed and in one piece", _marks).shown_in(*PieceKind),
        Witness("answers that end in both ways", _stopped).shown_in("stops", "ends"),
    ),
)
