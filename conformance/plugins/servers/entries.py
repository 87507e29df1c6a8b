"""Claims about the entries of logprobs: what they are of, and whether they are complete."""

from __future__ import annotations

import re
import statistics
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from conformance.core.schedule import Request
from conformance.core.trace import Claim, FinishReason
from conformance.plugins.servers.answers import Answer, PartKind
from conformance.scenarios.pieces import PieceKind, bytes_of, letters, single_bytes

HALF = "\ufffd"
"""In place of a character that is cut."""
_EQUAL_NATS = 1e-5
_SPACES = {"\u2581": " ", "\u0120": " ", "\u010a": "\n"}  # as vocabularies write them
_FEW = 2  # entries, one of which has a text
_MANY = 8  # logprobs, before their median counts
_ROUNDED = 1e-3  # some servers round what they list
_ID = re.compile(r"token_id:\d+")  # vLLM can name tokens so
_MARK = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # a special token, which a text may leave out


def about_logprobs(
    request: Request, answer: Answer, words: Sequence[str] | None = None
) -> Iterator[Claim]:
    """Claim that logprobs entries match the answer's tokens, with the likeliest tokens first.

    Entries without a token's name are skipped.

    Args:
        words: the texts of the answer's tokens, if they are not its words.
    """
    entries = answer.entries
    words = answer.text.split() if words is None else words
    if answer.bare:
        yield Claim("logprobs, unasked", str(len(entries)), "0", holds=not entries)
        return
    fields = request.asked.fields if request.asked is not None else {}
    if fields.get("logprobs") is True:  # not only because all requests have them
        said = str(sum(e.get("logprob") is not None for e in entries))
        yield Claim("tokens with logprobs", said, right := str(len(words)), said == right)
    elif 0 < len(entries) < len(words) and answer.reason == FinishReason.LENGTH:
        sentence = (
            f"the logprobs of the answer to {request.request_id!r} have {len(entries)} entries, "
            f"and its text has {len(words)} tokens"
        )
        said, right, cause = str(len(entries)), str(len(words)), "entries are lost, or come late"
        yield Claim("tokens with logprobs", said, right, False, cause, sentence)
    if "logprobs" in fields or "top_logprobs" in fields:
        yield from _all_named(entries)
    if "top_logprobs" in fields:
        # All answers have logprobs if the server's streams do; these were asked for by number.
        said, right = str(sum(bool(e.get("top_logprobs")) for e in entries)), str(len(words))
        yield Claim("tokens with top_logprobs", said, right, said == right)
    yield from _own_among_top(entries)
    yield from _none_above_0(entries)
    yield from _own_bytes(entries)
    if len(entries) != len(words):
        return
    named = [(e["token"], word) for e, word in zip(entries, words, strict=True) if e.get("token")]
    if named and not any(_ID.fullmatch(str(name)) for name, _ in named):
        said, found = (
            " ".join(str(text).strip() for text in texts) for texts in zip(*named, strict=True)
        )
        # A vocabulary's name of a token is as good as its text.
        read = [_dense(spelled([entry]) or "") for entry in entries if entry.get("token")]
        same = said == found or read == [_dense(word) for _, word in named]
        yield Claim("tokens of the logprobs", said, found, same)
    tops = [(e, e.get("top_logprobs") or ()) for e in entries]
    if any(top for _, top in tops):
        orders = [[float(one["logprob"]) for one in _after_own(e, top)] for e, top in tops]
        wrong = next((order for order in orders if order != sorted(order, reverse=True)), None)
        yield Claim("order of the top logprobs", str(wrong or orders[0]), "falling", wrong is None)


def _after_own(entry: Mapping[str, Any], top: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    """The likeliest tokens without the chosen one, if that leads: some servers list it first."""
    return top[1:] if top and top[0].get("token") == entry.get("token") else top


def _own_among_top(entries: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    """Claim that a token has the same logprob among the likeliest, or none of them is below it."""
    for entry in entries:
        listed = [top for top in entry.get("top_logprobs") or () if top.get("token")]
        own, said = entry.get("token"), entry.get("logprob")
        if not listed or not own or said is None:
            continue
        # Several tokens may have one name, and a server may strip the one and not the other.
        mine = [top["logprob"] for top in listed if top["token"] == own] or [
            top["logprob"] for top in listed if str(top["token"]).strip() == str(own).strip()
        ]
        right = any(abs(said - one) <= _ROUNDED for one in mine)
        if not right and (mine or said > min(top["logprob"] for top in listed) + _EQUAL_NATS):
            what, tops = "logprob of a token among its top_logprobs", [*map(_shown, listed)]
            yield Claim(what, f"{own} {said:.6g}", str(tops), holds=False)


def _shown(top: Mapping[str, Any]) -> tuple[str, float]:
    return str(top["token"]), float(top["logprob"])


def _none_above_0(entries: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    """Claim that no logprob is above 0, as probabilities are."""
    every = [*entries, *(top for entry in entries for top in entry.get("top_logprobs") or ())]
    most = max((e["logprob"] for e in every if e.get("logprob") is not None), default=0.0)
    yield Claim("the largest logprob", f"{most:.6g}", "at most 0", holds=most <= _ROUNDED)


def _own_bytes(entries: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    """Claim that a token has the bytes of its text, where that is plain letters and digits."""
    every = [*entries, *(top for entry in entries for top in entry.get("top_logprobs") or ())]
    for entry in every:
        name, raw = str(entry.get("token") or "").strip(), entry.get("bytes")
        if isinstance(raw, list) and name.isascii() and name.isalnum():
            said = bytes(raw).decode(errors="replace").strip()
            if said != name:
                yield Claim("the bytes of a token", repr(said), repr(name), holds=False)
                return


def _all_named(entries: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    """Claim that all entries, and the likeliest tokens in them, have what the API requires."""
    every = [*entries, *(top for entry in entries for top in entry.get("top_logprobs") or ())]
    if bare := sum(not isinstance(entry.get("token"), str) for entry in every):
        sentence = (
            f"{bare} of {len(every)} entries of the logprobs have no `token`, a text that OpenAI's "
            "API requires; their `bytes` do not replace it"
        )
        cause = "the server leaves out the names of tokens, which clients read"
        yield Claim(
            "names of logprobs", str(len(every) - bare), str(len(every)), False, cause, sentence
        )


def spelled(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """The text of the entries' tokens; ``None`` if they do not show it.

    By their bytes, by the letters of a byte-level vocabulary, or by plain names.
    """
    raws = [entry.get("bytes") for entry in entries]
    names = [str(entry.get("token") or "") for entry in entries]
    if entries and all(isinstance(raw, list) for raw in raws):
        raw = b"".join(bytes(raw or ()) for raw in raws)
        # Some servers have the bytes of the mark itself for a part of a character.
        return None if HALF.encode() in raw else raw.decode(errors="replace")
    if not entries or not all(names) or any(map(_ID.fullmatch, names)):
        return None
    if any(name in single_bytes(PieceKind.BYTE_FALLBACK) for name in names):
        return bytes_of(PieceKind.BYTE_FALLBACK, names).decode(errors="replace")
    plain = "".join(names)
    for mark, text in _SPACES.items():
        plain = plain.replace(mark, text)
    if plain.isascii():
        return plain
    if {letter for name in names for letter in name} <= set(letters().values()):
        return bytes_of(PieceKind.BYTE_LEVEL, names).decode(errors="replace")
    return None


def _plain(name: str) -> str:
    """A token's name without white space, as vocabularies write it, too."""
    return name.strip("".join(_SPACES) + string.whitespace)


def _dense(text: str) -> str:
    """A text without white space, and without what stands for no character."""
    return "".join(text.split()).replace(HALF, "")


def about_spelled(request: Request, answer: Answer, shown: Iterable[str] = ()) -> Iterator[Claim]:
    """Claim that the text of the entries' tokens is the answer's, up to the end of both.

    The entries may begin or end with what is no text, and a stop string may end the text before
    them.

    Args:
        shown: names of tokens that texts of other answers have.
    """
    found, said = spelled(answer.entries), _dense(answer.text)
    texts = all(part.kind is PartKind.TEXT for part in answer.parts)
    if not found or not texts or not said or answer.reason not in set(FinishReason):
        return
    if HALF in found and any(entry.get("bytes") is None for entry in answer.entries):
        return  # their names may be texts after all
    if not _MARK.search(said):
        found = _MARK.sub("", found)
    own = _dense(found)
    at_limit = answer.reason == FinishReason.LENGTH
    holds = own.endswith(said) if at_limit else said in own
    if holds and len(answer.text.split()) == 1 and HALF not in found:
        begin = own.rindex(said)
        read = [*accumulate(int(not letter.isspace()) for letter in found)]
        part = found[read.index(begin + 1) : read.index(begin + len(said))]
        spaced = len(part.split()) > 1
        yield Claim("spaces of an answer", "none", f"those of {part!r}", holds=not spaced)
    name, ends = request.request_id, (own[-24:], said[-24:]) if at_limit else (own[:24], said[:24])
    cause = "an entry of the logprobs, or a part of the text, is lost, late or another's"
    sentence = (
        f"the logprobs of the answer to {name!r} are of another text than it has: "
        f"{ends[0]!r}, and the text {'ends' if at_limit else 'begins'} with {ends[1]!r}"
    )
    if holds and own != said and (lost := _lost(request, answer, said, shown)):
        holds, cause = False, "the text of a token is lost at an end of the answer"
        sentence = f"the text of the answer to {name!r} lacks that of its {lost}"
    yield Claim("the text of the logprobs", *ends, holds, cause, sentence)


def _lost(request: Request, answer: Answer, said: str, shown: Iterable[str]) -> str:
    """The first or last token of an answer whose text is not in it; empty if it has none.

    What ends answers is in the text of none of them; a stop string may end this one earlier.
    """
    if len(answer.entries) < _FEW:
        return ""
    first, *within, last = answer.entries
    for place, one, rest in (("first", first, [*within, last]), ("last", last, [first, *within])):
        text, own = spelled([one]), spelled(rest)
        if not text or not own or _MARK.search(text) or (place == "last" and request.stop):
            continue
        left = _dense(_MARK.sub("", own))
        whole = left.startswith(said) if place == "first" else left.endswith(said)
        names = (str(entry.get("token")) for entry in rest)
        if whole and _dense(text) in {*map(_plain, names), *map(_plain, shown)} - {""}:
            return f"{place} token, {one.get('token')!r}"
    return ""


USUAL_NOISE: Mapping[str, float] = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.15}
"""How far rounding may move a logprob, in nats, where it cannot be measured, by dtype."""


def about_top(
    request: Request,
    listed: Sequence[Sequence[tuple[int, float]]],
    table: Any,
    most: int,
    nats: float,
) -> Iterator[Claim]:
    """Claim that the likeliest tokens are as many as asked for, with the single stream's logprobs.

    Args:
        listed: of each step, the likeliest tokens with their logprobs.
        table: the single stream's logprobs, float32 ``[tokens, vocab]``.
        most: how many likeliest tokens there must be.
        nats: how far rounding may move a logprob.
    """
    for step, (top, row) in enumerate(zip(listed, table, strict=False)):
        right, least = [float(row[token]) for token, _ in top], sorted(row)[-most] - nats
        said = [logprob for _, logprob in top]
        pairs = zip(said, right, strict=True)
        near = all((a == b or abs(a - b) <= nats) and b >= least for a, b in pairs)
        if len({token for token, _ in top}) != most or not near:
            shown, wanted = ([round(one, 4) for one in found] for found in (said, right))
            sentence = (
                f"token {step} of {request.request_id!r}: the likeliest have the logprobs {shown}, "
                f"in the single stream {wanted}; there must be {most}"
            )
            cause = "they are another row's, cut, or computed from other logits than the chosen one"
            what = "the likeliest tokens of an answer"
            yield Claim(what, str(shown), str(wanted), False, cause, sentence)
            return


def about_likeliest(
    request: Request,
    mine: Sequence[Mapping[str, Any]],
    alone: Sequence[Mapping[str, Any]],
    allowed: tuple[float, float],
    most: int,
) -> Iterator[Claim]:
    """Claim that the likeliest tokens of an answer are those of the same answer alone.

    Args:
        mine: the entries of the answer; ``alone``: those of the same tokens alone.
        allowed: how far rounding may move a logprob, in nats, and how far it may move most of them
            in one direction.
        most: how many of the likeliest tokens the request asks for; alone, more may be listed.
    """
    moved = list[float]()
    for step, pair in enumerate(zip(mine, alone, strict=False)):
        lists = [_likeliest(e, most) for e in pair]
        here, there = ({_name(t): t["logprob"] for t in tops} for tops in lists)
        same = _name(pair[0]) == _name(pair[1])
        if here and there and same and len(lists[0]) != len(lists[1]):
            what = f"likeliest tokens beside token {step}"
            yield Claim(what, str(len(lists[0])), f"{len(lists[1])} alone", holds=False)
            return
        # Parts of characters may have one name.
        if not here or not there or not same or len(here) < len(lists[0]):
            continue
        for name in here.keys() | there.keys():
            said = here.get(name, min(here.values()))
            right = there.get(name, min(there.values()))
            # One that is not listed may be as likely as the last one that is.
            off = said - right if name in here else right - said
            if name in here and name in there:
                moved += [off] if name != _name(pair[0]) else []
                off = abs(off)
            if off > allowed[0]:
                sentence = (
                    f"token {step} of {request.request_id!r}: among the likeliest, {name[0]!r} has "
                    f"the logprob {here.get(name, 'none')}, alone {there.get(name, 'none')}"
                )
                cause = "the likeliest tokens are another row's"
                what = "the likeliest tokens of an answer"
                yield Claim(what, str(here), str(there), False, cause, sentence)
                return
    shift = statistics.median(moved) if len(moved) >= _MANY else 0.0
    if abs(shift) > allowed[1]:
        sentence = (
            f"the logprobs of the likeliest tokens of {request.request_id!r}, but for the chosen "
            f"ones, are {abs(shift):.3g} nats {'above' if shift > 0 else 'below'} those alone"
        )
        cause = "they are computed otherwise than alone, or from other logits than the chosen ones'"
        what = "most of the likeliest tokens"
        yield Claim(what, f"{shift:+.3g}", "0", False, cause, sentence)


def _likeliest(entry: Mapping[str, Any], most: int) -> Sequence[Mapping[str, Any]]:
    """So many of an entry's likeliest tokens, and the chosen one, which a server may list, too."""
    tops: Sequence[Mapping[str, Any]] = entry.get("top_logprobs") or ()
    ordered = sorted(tops, key=lambda top: -top["logprob"])
    return [t for at, t in enumerate(ordered) if at < most or _name(t) == _name(entry)]


def _name(entry: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    return str(entry.get("token")), tuple(entry.get("bytes") or ())
