"""Entries of logprobs: how servers name tokens, and what they may leave out."""

import msgspec
import pytest

from conformance.core.named_server import NamedServer
from conformance.core.schedule import Request
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.entries import (
    about_likeliest,
    about_logprobs,
    about_spelled,
    about_top,
)
from conformance.plugins.servers.remote import Remote

REQUEST = Request("a", (1, 2, 3), 4)


def entries(*names, logprob=-0.5, tops=()):
    listed = [{"token": name, "logprob": one} for name, one in tops]
    return [{"token": name, "logprob": logprob, "top_logprobs": listed} for name in names]


def wrong(text, names, reason="stop"):
    """What does not hold of an answer with this text, whose entries have these names."""
    answer = Answer(text, entries=entries(*names), reason=reason)
    return [claim.what for claim in about_spelled(REQUEST, answer) if not claim.holds]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("warm hand", ["warm", " hand"]),
        ("warm hand", ["\u0120warm", "\u0120hand"]),  # a byte-level vocabulary
        ("warm hand", ["\u2581warm", "\u2581hand"]),  # SentencePiece
        ("warm \u00d7", ["\u2581warm", "\u2581", "<0xC3>", "<0x97>"]),
        ("warm hand", ["<|begin|>", "warm", " hand", "</s>"]),  # what the text leaves out
        ("<b>warm", ["<b>", "warm"]),
        ("warmhand", ["warm", "hand"]),  # names without spaces prove none
        ("warmhand", ["warm", "hand", " and more"]),  # a stop string ended the text before
        ("warm", ["token_id:7"]),
        ("warm hand", ["warm", " hand", "[e~["]),  # the end's name; it is in no text
    ],
)
def test_a_right_answer_is_spelled_by_its_entries(text, names):
    assert wrong(text, names) == []


@pytest.mark.parametrize(
    ("text", "names", "reason", "what"),
    [
        ("warm hand", ["warm", " cold"], "stop", "the text of the logprobs"),
        ("warm", ["warm", " hand"], "length", "the text of the logprobs"),
        ("warmhand", ["warm", " hand"], "length", "spaces of an answer"),
        ("warmhand", ["\u2581warm", "\u2581hand"], "stop", "spaces of an answer"),
        ("b warm", ["a", " b", " warm", "a"], "stop", "the text of the logprobs"),
        ("b a warm", ["a", " b", " a", " warm"], "stop", "the text of the logprobs"),
    ],
)
def test_another_text_is_found(text, names, reason, what):
    assert wrong(text, names, reason) == [what]


def test_entries_that_are_fewer_than_the_tokens_of_a_text_are_found():
    answer = Answer("t1 t2 t3", entries=entries("t1", "t2"), reason="length")
    (found,) = [claim for claim in about_logprobs(REQUEST, answer) if not claim.holds]
    assert found.sentence.endswith("have 2 entries, and its text has 3 tokens")


AMONG, LARGEST = "logprob of a token among its top_logprobs", "the largest logprob"


@pytest.mark.parametrize(
    ("logprob", "tops", "what"),
    [
        (-0.5, [("w", -0.5), (" w", -4.5)], []),
        (-0.50004, [("w", -0.5), ("v", -4.5)], []),  # rounded
        (-0.5, [("v", -0.2), ("u", -0.4)], []),  # not among them
        (-0.5, [("w", -1.5), ("v", -4.5)], [AMONG]),
        (-0.5, [("v", -0.7)], [AMONG]),
        (0.61, [("w", 0.61), ("v", 0.2)], [LARGEST]),  # probabilities
    ],
)
def test_the_own_logprob_is_among_the_likeliest(logprob, tops, what):
    answer = Answer("w", entries=entries("w", logprob=logprob, tops=tops), reason="length")
    found = [claim.what for claim in about_logprobs(REQUEST, answer) if not claim.holds]
    assert found == what


TOPS = [("w", -0.5), ("v", -1.5), ("u", -2.5)]


@pytest.mark.parametrize(
    ("mine", "right"),
    [
        (TOPS, True),
        ([("w", -0.5), ("v", -1.6), ("u", -2.5)], True),
        ([("w", -0.5), ("v", -2.4), ("u", -2.5)], False),
        (TOPS[:1], False),  # fewer than alone
    ],
)
def test_the_likeliest_are_those_of_the_answer_alone(mine, right):
    found, alone = entries("w", tops=mine), entries("w", tops=TOPS)
    assert all(c.holds for c in about_likeliest(REQUEST, found, alone, (0.5, 0.1), 5)) is right


@pytest.mark.parametrize(("mine", "right"), [(TOPS[:2], True), (TOPS[:1], False), (TOPS, True)])
def test_a_request_that_asks_for_fewer_than_alone_gets_fewer(mine, right):
    found, alone = entries("w", tops=mine), entries("w", tops=TOPS)
    assert all(c.holds for c in about_likeliest(REQUEST, found, alone, (0.5, 0.1), 2)) is right


def test_parts_of_characters_that_share_a_name_are_not_compared():
    mine, alone = ([("w", -0.5), ("\ufffd", -5.0), ("\ufffd", one)] for one in (-5.1, -2.0))
    found, right = entries("w", tops=mine), entries("w", tops=alone)
    assert list(about_likeliest(REQUEST, found, right, (0.5, 0.1), 5)) == []


@pytest.mark.parametrize(("off", "right"), [(-0.45, False), (0.3, False), (0.05, True)])
def test_no_more_likely_tokens_than_alone_are_all_moved_in_one_direction(off, right):
    moved = [TOPS[0], *((name, logprob + off) for name, logprob in TOPS[1:])]
    mine, alone = (entries(*"wwww", tops=tops) for tops in (moved, TOPS))
    assert all(c.holds for c in about_likeliest(REQUEST, mine, alone, (0.5, 0.1), 5)) is right


def test_the_chosen_token_may_lead_the_likeliest():
    def wrong(*tops):
        answer = Answer("w", entries=entries("w", tops=tops), reason="length")
        return [claim.what for claim in about_logprobs(REQUEST, answer) if not claim.holds]

    assert wrong(("w", -0.5), ("v", -0.2), ("u", -0.3)) == []
    assert wrong(("v", -0.7), ("u", -0.3), ("w", -0.5)) == ["order of the top logprobs"]


@pytest.mark.parametrize(
    ("names", "right"),
    [
        (["\u0120\u00c5\u0141", "ing"], True),
        (["\u015f", "ing"], True),
        (["\u0120\u00c5\u0142", "ing"], False),
    ],
    ids=["of a vocabulary", "a text", "another"],
)
def test_a_vocabularys_name_of_a_token_is_its_text(names, right):
    answer = Answer("\u015f ing", entries=entries(*names), reason="length")
    claims = {claim.what: claim.holds for claim in about_logprobs(REQUEST, answer)}
    assert claims["tokens of the logprobs"] is right


def test_tokens_after_a_stop_sequence_are_none_of_an_answer():
    """A server shows the end of a stop string's last character before it can end there."""
    remote = Remote(NamedServer("http://127.0.0.1:1"), "small", "float32")
    parts = [{"token": "\ufffd", "bytes": [byte]} for byte in "\u96ea".encode()]
    answer = Answer("a\u96ea", entries=[{"token": "a", "bytes": [97]}, *parts], reason="length")
    tokens = remote.keep(REQUEST, answer).tokens
    stopped = msgspec.structs.replace(REQUEST, stop=(tokens[1:3],))
    found = remote.tokens(stopped, Answer("a", entries=answer.entries))
    assert tuple(token for token, _ in found) == tokens[:3]
    assert remote.texts["<0xE9>"] == tokens[1]


@pytest.mark.parametrize(
    ("name", "raw", "right"),
    [
        ("t17", [*b"t17"], True),
        ("t17", [*b" t17"], True),
        ("t17", [*b"t"], False),
        ("t17", [], False),
        ("t17", None, True),
        ("\u0120a", [*b" a"], True),
        ("\ufffd", [0xF0], True),
    ],
)
def test_a_token_of_plain_letters_has_the_bytes_of_its_text(name, raw, right):
    entry = {"token": name, "bytes": raw, "logprob": -1.0}
    found = about_logprobs(REQUEST, Answer(name, entries=[entry]), [name])
    assert all(c.holds for c in found if c.what == "the bytes of a token") is right
    top = {"token": "a", "logprob": -1.0, "top_logprobs": [entry]}
    found = about_logprobs(REQUEST, Answer("a", entries=[top]), ["a"])
    assert all(c.holds for c in found if c.what == "the bytes of a token") is right


@pytest.mark.parametrize(
    ("top", "right"),
    [
        ([(0, -0.5), (2, -1.5)], True),
        ([(2, -1.5), (0, -0.5)], True),
        ([(0, -0.5)], False),  # one too few
        ([(0, -0.5), (0, -0.5)], False),
        ([(0, -0.5), (1, -3.0)], False),  # a less likely one
        ([(0, -0.5), (2, -2.0)], False),  # not its logprob
    ],
)
def test_the_likeliest_are_those_of_the_single_stream(top, right):
    assert bool([*about_top(REQUEST, [top], [(-0.5, -3.0, -1.5)], 2, 1e-3)]) is not right
