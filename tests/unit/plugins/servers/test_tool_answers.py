"""What a client gets of a text with markers is held to the text."""

import json

import pytest

from conformance.core.schedule import Request
from conformance.plugins.servers.answers import Answer, Made, Part, PartKind
from conformance.plugins.servers.tool_answers import Marked, about_tools, contents
from conformance.scenarios.marker_styles import CALLS, STYLES

REASONING, TEXT, CALLED = (f"the {part} of an answer" for part in ("reasoning", "text", "calls"))
STYLE = STYLES["json_tools"]
ONE, TWO = CALLS[:2]
FIRST = f"<tool_call>{STYLE.written(ONE)}</tool_call>"
SECOND = f"<tool_call>{STYLE.written(TWO)}</tool_call>"


def made(*calls):
    return {
        at: Made(f"id{at}", "look", json.dumps(call.arguments)) for at, call in enumerate(calls)
    }


def answer(text="", reasoning="", calls=(), reason="stop", made_of=None):
    kinds = {PartKind.REASONING: reasoning, PartKind.TEXT: text}
    parts = [Part(kind, said) for kind, said in kinds.items() if said]
    return Answer(text, parts, calls=made_of or made(*calls), reason=reason)


def wrong(text, given, *, ended=True, style=STYLE, opened=False):
    """What does not hold of an answer."""
    claims = about_tools(style, text, given, opened=opened, ended=ended)
    return [claim.what for claim in claims if not claim.holds]


def test_contents_are_kept_apart():
    found = contents(STYLE, f"<think>so</think>yes {FIRST} and{SECOND}then<tool_call>{{")
    assert (found.reasoning, found.text, found.calls) == ("so", "yes  andthen", [ONE, TWO])
    assert (found.open, found.unclosed) == ("{", [])
    assert contents(STYLE, "so</thi", opened=True).held == "</thi"
    assert contents(STYLE, f"<tool_call>{STYLE.written(ONE)}").unclosed == [ONE]


@pytest.mark.parametrize(
    ("text", "given", "ended"),
    [
        ("<think>so</think>yes", answer("yes", "so"), True),
        (f"yes{FIRST}", answer("yes", calls=[ONE], reason="tool_calls"), True),
        (f"{FIRST}{SECOND}", answer(calls=[ONE, TWO], reason="tool_calls"), True),
        (f"{FIRST}yes", answer("yes", calls=[ONE], reason="length"), False),
        (f"{FIRST}yes", answer("yes", calls=[ONE], reason="tool_calls"), False),
        ("<think>so</th", answer("", "so", reason="length"), False),
        ("<think>so</th", answer("", "so</th", reason="length"), False),
        ("yes<tool_call>{", answer("yes", reason="length"), False),
        ("yes<tool_call>{", answer("yes<tool_call>{", reason="length"), False),
        (FIRST.removesuffix("</tool_call>"), answer(calls=[ONE], reason="tool_calls"), True),
        (FIRST.removesuffix("</tool_call>"), answer(), True),
    ],
)
def test_what_is_right_holds(text, given, ended):
    assert wrong(text, given, ended=ended) == []


@pytest.mark.parametrize(
    ("text", "given", "what"),
    [
        ("<think>so</think>yes", answer("soyes"), [REASONING, TEXT]),
        ("<think>so</think>yes", answer("<think>yes", "so"), [TEXT]),
        (f"yes{FIRST}", answer(calls=[ONE], reason="tool_calls"), [TEXT]),
        (f"{FIRST}{SECOND}", answer(calls=[ONE], reason="tool_calls"), [CALLED]),
        (f"{FIRST}{SECOND}", answer(calls=[TWO, ONE], reason="tool_calls"), [CALLED]),
        ("<tool_call>{", answer(calls=[ONE], reason="tool_calls"), [CALLED]),
        ("<tool_call>{", answer(reason="tool_calls"), ["finish_reason of an answer with 0 calls"]),
        (FIRST, answer(calls=[ONE]), ["finish_reason of an answer with 1 calls"]),
        (
            FIRST,
            answer(reason="tool_calls", made_of={0: Made("x", "look", "{'at': 1}")}),
            [CALLED],
        ),
        (
            FIRST,
            answer(reason="tool_calls", made_of={0: Made("", "look", json.dumps(ONE.arguments))}),
            ["ids of calls"],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, given, what):
    assert wrong(text, given) == what


def test_only_the_end_closes_calls_without_a_marker():
    style = STYLES["mistral"]
    (both,) = style.sections([ONE, TWO])
    text = style.opening + both
    assert wrong(text, answer(calls=[ONE, TWO], reason="tool_calls"), style=style) == []
    assert wrong(text, answer(calls=[ONE], reason="tool_calls"), style=style) == [CALLED]
    cut = answer(calls=[ONE], reason="length")
    assert wrong(text[:-3], cut, style=style, ended=False) == []


def test_tokens_are_those_of_the_logprobs_or_the_right_ones():
    marked = Marked(STYLE, [("<thi", 7), ("nk>", 8), ("</think>", 9)], [3])
    right = (7, 8, 5, 3)
    named = Answer(entries=[{"token": "<thi", "logprob": -1.0}, {"token": "t5", "logprob": -2.0}])
    assert marked.read(right, named) == [(7, -1.0), (5, -2.0)]
    assert marked.read(right, Answer(entries=[{"id": 8, "logprob": -1.0}])) == [(8, -1.0)]
    assert marked.read(right, Answer()) == []
    assert [t for t, _ in marked.read((7, 8, 3), Answer(reason="stop"))] == [7, 8, 3]
    request = Request("r", (1, 2), 9)
    assert marked.ending(request, right) == 1
    assert marked.ending(request, right[:-1]) == 0
    assert marked.words((7, 9, 3)) == ["<thi", "</think>"]
    claims = marked.about(request, (7, 8, 9, 3), answer("", ""))
    assert all(claim.holds for claim in claims)


def test_plain_words_are_read_with_the_marker_between_reasoning_and_text():
    marked = Marked(STYLE, [("<think>", 7), ("</think>", 9)], [])
    right = (4, 9, 5, 5)
    given = answer("t5 t6", "t4", reason="length")
    assert [t for t, _ in marked.read(right, given)] == [4, 9, 5, 6]
    request = Request("r", (1, 7), 4)
    said = [claim.what for claim in marked.about(request, right, given) if not claim.holds]
    assert said == [TEXT]
    given.parts[1] = Part(PartKind.TEXT, "t5t5")
    assert all(claim.holds for claim in marked.about(request, right, given))


@pytest.mark.parametrize("said", ["so", "so ", "so it"])
def test_an_answer_ends_before_a_stop_string_in_its_reasoning(said):
    marked = Marked(STYLE, [("<think>", 7), ("so", 8), (" it", 5), (" goes", 6)], [3])
    request = Request("r", (1, 2), 9, stop=((3,), (5, 6)))
    right = (7, 8, 5, 6)
    assert marked.ending(request, right) == 2
    claims = marked.about(request, right, answer("", said))
    assert [claim.what for claim in claims if not claim.holds] == [REASONING] * (said == "so it")
