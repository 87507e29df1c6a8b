"""What a request's body has beside tokens."""

import msgspec
import pytest

from conformance.core.schedule import Asked, Request
from conformance.core.token_choice import OF_SERVER, RANDOM, Processor, Sampler
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Came
from conformance.plugins.servers.claims import asked_again, memory_kept
from conformance.plugins.servers.fields import fits_schema, further, messages, question


def text(tokens):
    return " ".join(map(str, tokens))


def test_a_system_message_comes_first():
    request = Request("a", (1, 2, 3), 1, asked=Asked(system=2))
    assert messages(request, text) == [
        {"role": "system", "content": "1 2 "},
        {"role": "user", "content": "3"},
    ]
    assert messages(Request("a", (1, 2), 1), text) == [{"role": "user", "content": "1 2"}]


def test_a_schema_and_a_tool_are_asked_for_only_where_they_are_wanted():
    assert further(Request("a", (1,), 1)) == {}
    assert set(further(Request("a", (1,), 1, asked=Asked(schema=True)))) == {"response_format"}
    assert set(further(Request("a", (1,), 1, asked=Asked(tools=True)))) == {"tools"}


def test_options_of_a_row_are_fields_of_the_request():
    sampler = Sampler(RANDOM, {"temp": 1.5, "top_k": 3})
    bias = Processor("library", {"logit_bias": {"7": 4.0}})
    request = Request("a", (1,), 1, sampler=sampler, processors=(bias,), stop=((2, 3), (4,)))
    body = question(request, "m", text, streamed=False).body
    given = {name: body[name] for name in ("temperature", "top_k", "logit_bias", "stop")}
    assert given == {
        "temperature": 1.5,
        "top_k": 3,
        "logit_bias": {"7": 4.0},
        "stop": ["2 3", "4"],
    }
    assert "seed" not in body
    own = msgspec.structs.replace(request, sampler=Sampler(OF_SERVER, {"seed": 1}))
    assert question(own, "m", text, streamed=False).body["seed"] == 1


@pytest.mark.parametrize(
    ("answer", "fits"),
    [('{"a":1}', True), (' { "a": 2 }', True), ('{"a":3}', False), ('{"a":1', False), ("", False)],
)
def test_json_of_the_schema(answer, fits):
    assert fits_schema(answer) is fits


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (Came("a", Answer("t1 t2 t3")), "not its decoding"),
        (Came("a", Answer("t1 t5")), "gives another one"),
        (Came("a", Answer(), error="HTTP 500"), "it fails, too: HTTP 500"),
    ],
)
def test_what_broke_off_is_compared_with_the_same_asked_again(again, said):
    claim = asked_again(Came("a", Answer("t1 t2"), error="ReadError"), again)
    assert said in claim.found
    assert not claim.holds


def test_memory_may_grow_by_buffers_and_not_with_each_request():
    (fine,) = memory_kept(400 * 2**20, 500 * 2**20)
    (grown,) = memory_kept(400 * 2**20, 720 * 2**20)
    assert fine.holds
    assert not grown.holds
    assert list(memory_kept(1, None)) == []


def test_a_conversation_is_messages_of_the_user_and_the_assistant_in_turn():
    request = Request("a", tuple(range(1, 10)), 1, asked=Asked(turns=(2, 1)))
    assert messages(request, text) == [
        {"role": "user", "content": "1 2 "},
        {"role": "assistant", "content": "3 "},
        {
            "role": "user",
            "content": [{"type": "text", "text": "4 5 6 "}, {"type": "text", "text": " 7 8 9"}],
        },
    ]
