"""What a client should get of a text with reasoning and calls of tools, and what it got.

No parser is needed for the right answer: the calls of a text are known by how they are written. Of
a call that a limit or an end token breaks off a client may get the text or nothing, but no call:
nobody knows what it was going to be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.core.schedule import Request
from conformance.core.trace import Claim, FinishReason
from conformance.plugins.servers.answers import CALLED, Answer, Made, PartKind
from conformance.plugins.servers.asking import Tokens
from conformance.plugins.servers.words import tokens_of, whole_text
from conformance.scenarios.marker_styles import TOOL_NAME, Call, MarkerStyle

_CONTROL = re.compile(r"<\|[^>]+\|>")


@dataclass
class Contents:
    """The parts of a text, without markers.

    Attributes:
        reasoning, text: what is in these parts.
        calls: those that are closed.
        open: the text of a call that is not closed, without its opening marker.
        unclosed: the calls that are whole in it.
        held: the begin of a marker, at the end of the reasoning or the text.
    """

    reasoning: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    open: str | None = None
    unclosed: list[Call] = field(default_factory=list)
    held: str = ""


def contents(style: MarkerStyle, text: str, *, opened: bool = False) -> Contents:
    """The parts of a text in this style.

    Args:
        opened: whether it begins in reasoning.
    """
    found = Contents()
    before, after = style.thinking
    while True:
        markers = (after,) if opened else (before, style.opening)
        said, marker, text = _until(text, markers)
        if opened:
            found.reasoning += said
        else:
            found.text += said
        if not marker:
            found.held = _begun(said, markers)
            return found
        opened = marker == before
        if marker != style.opening:
            continue
        section, closing, text = _until(text, (style.closing,)) if style.closing else (text, "", "")
        whole = style.calls(section)
        if closing:
            found.calls += whole
        else:
            found.open, found.unclosed = section, whole
            return found


def _until(text: str, markers: Sequence[str]) -> tuple[str, str, str]:
    """The text before the first of these markers, the marker, and the rest; all of it if none."""
    places = [(text.index(marker), marker) for marker in markers if marker in text]
    if not places:
        return text, "", ""
    at, marker = min(places)
    return text[:at], marker, text[at + len(marker) :]


def _begun(text: str, markers: Sequence[str]) -> str:
    """The end of the text that may be the begin of a marker."""
    sizes = (n for m in markers for n in range(len(m) - 1, 0, -1) if text.endswith(m[:n]))
    size = max(sizes, default=0)
    return text[len(text) - size :]


def about_tools(
    style: MarkerStyle, text: str, answer: Answer, *, opened: bool, ended: bool
) -> Iterator[Claim]:
    """Claims about an answer whose text with all markers is known.

    Args:
        opened: whether its reasoning was begun by the prompt.
        ended: whether a token ended it, and not its limit.
    """
    right = contents(style, text, opened=opened)
    cut_reasoning = right.held if not right.text and right.reasoning.endswith(right.held) else ""
    yield _of(PartKind.REASONING, answer, _with(right.reasoning, cut_reasoning))
    texts = _with(right.text, "" if cut_reasoning else right.held)
    if right.open is not None:
        section = right.open
        rest = _begun(section, (style.closing,))
        parts = [style.opening + section, section]
        parts += [part.removesuffix(rest) for part in parts]
        # Some servers leave out what looks like a control token.
        parts += [_CONTROL.sub("", part) for part in parts]
        texts += [right.text + part for part in parts]
    yield _of(PartKind.TEXT, answer, texts)
    yield from _of_calls(style, right, list(answer.calls.values()), ended=ended)
    reasons = {CALLED} if answer.calls else {FinishReason.STOP if ended else FinishReason.LENGTH}
    if not ended:  # both are true of an answer that the limit cut after a call
        reasons |= {FinishReason.LENGTH}
    said, allowed = str(answer.reason), " or ".join(sorted(reasons))
    calls = f"{len(answer.calls)} calls"
    yield Claim(f"finish_reason of an answer with {calls}", said, allowed, said in reasons)


def _with(text: str, held: str) -> list[str]:
    """A text with and without the begin of a marker at its end."""
    return [text, text.removesuffix(held)]


def _of(kind: PartKind, answer: Answer, allowed: Sequence[str]) -> Claim:
    """Claim that the parts of one kind have one of these texts, whatever their blanks are."""
    said = "".join(part.text for part in answer.parts if part.kind is kind)
    holds = _tight(said) in map(_tight, allowed)
    return Claim(f"the {kind} of an answer", repr(said), repr(allowed[0]), holds)


def _tight(text: str) -> str:
    return "".join(text.split())


def _of_calls(
    style: MarkerStyle, right: Contents, made: Sequence[Made], *, ended: bool
) -> Iterator[Claim]:
    """Claim that an answer has the calls that its text has, each with an id of its own."""
    said = [f"{call.name}({call.arguments})" for call in made]
    # Those of an open section may be there; they must if only the end closes it.
    least = len(right.unclosed) if ended and not style.closing else 0
    allowed = [
        [*right.calls, *right.unclosed[:count]] for count in range(least, len(right.unclosed) + 1)
    ]
    holds = [_parsed(call) for call in made] in [
        [(TOOL_NAME, call.arguments) for call in calls] for calls in allowed
    ]
    expected = [f"{TOOL_NAME}({json.dumps(call.arguments)})" for call in allowed[-1]]
    yield Claim("the calls of an answer", " ".join(said), " ".join(expected) or "none", holds)
    ids = {call.id for call in made} - {""}
    yield Claim("ids of calls", str(len(ids)), str(len(made)), len(ids) == len(made))


def _parsed(call: Made) -> tuple[str, object]:
    """A call's name and arguments; the text of the latter if it is no JSON."""
    try:
        return call.name, json.loads(call.arguments)
    except ValueError:
        return call.name, call.arguments


class Marked:
    """Reads answers whose tokens have texts with markers.

    Args:
        words: the texts of the tokens.
        ends: the tokens that end an answer; they have no text.
    """

    def __init__(
        self, style: MarkerStyle, words: Sequence[tuple[str, int]], ends: Sequence[int]
    ) -> None:
        self._style, self._ends, self._words = style, ends, words
        self._texts = {token: text for text, token in words}
        self._tokens = {text.strip(): token for text, token in words}

    def ending(self, request: Request, right: Sequence[int]) -> int:
        """How many tokens ended an answer with these tokens: an end token or a stop string."""
        sizes = {len(stop) for stop in request.stop if stop == tuple(right[-len(stop) :])}
        return max(sizes | {int(bool(right) and right[-1] in self._ends)})

    def words(self, right: Sequence[int]) -> list[str]:
        """The texts of an answer's tokens; plain words are apart."""
        return [
            self._texts.get(token) or f" t{token}" for token in right if token not in self._ends
        ]

    def read(self, right: Sequence[int], answer: Answer) -> Tokens:
        """The tokens of an answer: those of its logprobs or, if it has none, the right ones.

        What it lacks is then for the claims about its parts to say. Plain words are read, too, with
        the marker that ends reasoning before the text.
        """
        if answer.entries:
            return [(self._token(entry), entry.get("logprob")) for entry in answer.entries]
        if not self._plain(right):
            return [(token, None) for token in right] if answer.reason is not None else []
        markers = {PartKind.REASONING: ("", self._style.thinking[1])}
        text = whole_text(answer.parts, markers)
        return [(token, None) for token in tokens_of(text, self._words)]

    def _plain(self, right: Sequence[int]) -> bool:
        return any(token not in self._texts and token not in self._ends for token in right)

    def _token(self, entry: Mapping[str, Any]) -> int:
        text = str(entry.get("token") or "").strip()
        if not text:
            return int(entry["id"])
        return self._tokens[text] if text in self._tokens else int(text.removeprefix("t"))

    def about(self, request: Request, right: Sequence[int], answer: Answer) -> Iterator[Claim]:
        """Claims about the parts of an answer; see ``about_tools``."""
        opened = self._texts.get(request.prompt[-1]) == self._style.thinking[0]
        ending = self.ending(request, right)
        text = "".join(self.words(right[: len(right) - ending]))
        yield from about_tools(self._style, text, answer, opened=opened, ended=ending > 0)
