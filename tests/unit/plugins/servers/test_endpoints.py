"""Answers of other endpoints are read as their references have them; what is not so is named."""

import asyncio
import copy

import pytest

from conformance.plugins.servers.answers import Answer, PartKind
from conformance.plugins.servers.endpoints import (
    READERS,
    StreamError,
    ending_of,
    events,
    sent,
)

CHAT = {
    "model": "m", "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    "max_tokens": 3, "stop": ["x"], "stream": True, "logprobs": True, "stream_options": {},
}  # fmt: skip
MESSAGE = {"id": "m1", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
USAGE = {"input_tokens": 2, "cache_read_input_tokens": 1, "output_tokens": 0}


def block(index, kind, **more):
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def delta(index, kind, **more):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


MESSAGES = [
    {"type": "message_start", "message": {**MESSAGE, "usage": USAGE}},
    {"type": "ping"},
    block(0, "thinking"),
    delta(0, "thinking_delta", thinking="so"),
    stop(0),
    block(1, "text", text=""),
    delta(1, "text_delta", text="yes"),
    delta(1, "text_delta", text=" no"),
    stop(1),
    block(2, "tool_use", id="c", name="look"),
    delta(2, "input_json_delta", partial_json='{"at"'),
    delta(2, "input_json_delta", partial_json=": 1}"),
    stop(2),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    },
    {"type": "message_stop"},
]
TEXT = {"type": "message", "content": [{"type": "output_text", "text": "yes no"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'}
RESPONSE = {
    "id": "r1", "object": "response", "status": "completed", "output": [TEXT, CALL],
    "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
}  # fmt: skip


def of(name, **more):
    return {"type": f"response.{name}", **more}


RESPONSES = [
    of("created", response={**RESPONSE, "status": "in_progress", "output": []}),
    of("in_progress", response={**RESPONSE, "status": "in_progress", "output": []}),
    of("output_item.added", output_index=0, item=TEXT),
    of("content_part.added", output_index=0),
    of("output_text.delta", output_index=0, delta="yes"),
    of("output_text.delta", output_index=0, delta=" no"),
    of("output_text.done", output_index=0, text="yes no"),
    of("output_item.done", output_index=0, item=TEXT),
    of("output_item.added", output_index=1, item={**CALL, "arguments": ""}),
    of("function_call_arguments.delta", output_index=1, delta='{"at"'),
    of("function_call_arguments.delta", output_index=1, delta=": 1}"),
    of("function_call_arguments.done", output_index=1, arguments='{"at": 1}'),
    of("output_item.done", output_index=1, item=CALL),
    of("completed", response=RESPONSE),
]
STREAMS = {"messages": MESSAGES, "responses": RESPONSES}


def read(endpoint, stream):
    answer = Answer()
    reader = READERS[endpoint](answer)
    for data in stream:
        reader.named(data["type"], data)
    return reader, answer


@pytest.mark.parametrize("endpoint", READERS)
def test_a_right_stream_has_no_problem(endpoint):
    reader, answer = read(endpoint, STREAMS[endpoint])
    assert reader.ended
    assert answer.problems == []
    assert answer.text == "yes no"
    assert [(c.id, c.name, c.arguments) for c in answer.calls.values()] == [
        ("c", "look", '{"at": 1}')
    ]
    assert answer.reason == "tool_calls"
    assert answer.usage == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert len(answer.ids) == 1


def test_reasoning_of_a_message_is_apart():
    _, answer = read("messages", MESSAGES)
    assert next((p.kind, p.text) for p in answer.parts) == (PartKind.REASONING, "so")


@pytest.mark.parametrize("endpoint", READERS)
def test_a_stream_that_lacks_an_event_has_a_problem(endpoint):
    """But for pieces, whose lack is a wrong text, and the last event."""
    fine = {
        "ping",
        "content_block_delta",
        "response.content_part.added",
        "response.output_text.done",
    }
    fine |= {"response.function_call_arguments.done"}
    for at, event in enumerate(STREAMS[endpoint][:-1]):
        if event["type"] in fine:
            continue
        stream = [*STREAMS[endpoint][:at], *STREAMS[endpoint][at + 1 :]]
        try:
            _, answer = read(endpoint, stream)
        except KeyError:  # a piece of a call that was never begun
            continue
        assert answer.problems, event["type"]


@pytest.mark.parametrize("endpoint", READERS)
def test_two_events_in_another_order_are_a_problem(endpoint):
    for at in range(len(STREAMS[endpoint]) - 1):
        stream = [*STREAMS[endpoint]]
        stream[at], stream[at + 1] = stream[at + 1], stream[at]
        kinds = {stream[at]["type"], stream[at + 1]["type"]}
        pieces = {"ping", "content_block_delta", "response.output_text.delta"}
        pieces |= {"response.content_part.added", "response.function_call_arguments.done"}
        pieces |= {"response.output_text.done"}
        # A part may begin before the one before it is closed.
        if kinds & pieces or kinds == {f"response.output_item.{way}" for way in ("added", "done")}:
            continue
        try:
            _, answer = read(endpoint, stream)
        except KeyError:
            continue
        assert answer.problems, kinds


@pytest.mark.parametrize(
    ("endpoint", "at", "path", "value"),
    [
        ("messages", 0, ("message", "stop_reason"), "end_turn"),
        ("messages", 0, ("message", "content"), [{"type": "text"}]),
        ("messages", 3, ("delta", "type"), "text_delta"),
        ("messages", 5, ("index",), 2),
        ("messages", 6, ("index",), 0),
        ("responses", 0, ("response", "status"), "completed"),
        ("responses", 4, ("output_index",), 1),
        ("responses", 6, ("text",), "yes"),
        ("responses", 13, ("response", "status"), "incomplete"),
        ("responses", 13, ("response", "output"), [CALL]),
        ("responses", 13, ("response", "output"), [TEXT]),
    ],
)
def test_a_wrong_field_is_a_problem(endpoint, at, path, value):
    stream = copy.deepcopy(STREAMS[endpoint])
    place = stream[at]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    _, answer = read(endpoint, stream)
    wrong = answer.problems or answer.reason != "tool_calls"
    assert wrong


def test_numbers_of_events_rise_if_there_are_any():
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(RESPONSES)]
    assert read("responses", numbered)[1].problems == []
    numbered[4]["sequence_number"] = 3
    assert read("responses", numbered)[1].problems == ["sequence_number 3 after 3"]


def test_an_event_has_the_name_of_its_type():
    reader = READERS["messages"](answer := Answer())
    reader.named("ping", MESSAGES[0])
    assert answer.problems == ["an event named ping of type message_start"]


def test_an_error_in_a_stream_is_raised():
    with pytest.raises(StreamError, match="too long"):
        read("messages", [MESSAGES[0], {"type": "error", "error": {"message": "too long"}}])
    with pytest.raises(StreamError, match="too long"):
        read("responses", [RESPONSES[0], {"type": "error", "message": "too long"}])


def test_an_answer_in_one_piece_is_read_as_a_stream():
    content = [
        {"type": "thinking", "thinking": "so"},
        {"type": "text", "text": "yes no"},
        {"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}},
    ]
    usage = {**USAGE, "output_tokens": 5}
    message = {**MESSAGE, "content": content, "stop_reason": "tool_use", "usage": usage}
    for endpoint, data in (("messages", message), ("responses", RESPONSE)):
        READERS[endpoint](answer := Answer()).whole(data)
        assert (answer.text, answer.reason, answer.problems) == ("yes no", "tool_calls", [])
        assert [call.arguments for call in answer.calls.values()] == ['{"at": 1}']
        assert answer.usage["total_tokens"] == 8


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]}


@pytest.mark.parametrize(
    "item", [THOUGHT, {**THOUGHT, "content": [{"type": "reasoning_text", "text": "so"}]}]
)
def test_reasoning_of_a_response_is_apart(item):
    whole = {**RESPONSE, "output": [item, TEXT]}
    READERS["responses"](answer := Answer()).whole(whole)
    assert [(part.kind, part.text) for part in answer.parts] == [
        (PartKind.REASONING, "so"),
        (PartKind.TEXT, "yes no"),
    ]
    thought = [
        of("output_item.added", output_index=0, item=THOUGHT),
        of("reasoning_text.delta", output_index=0, delta="so"),
        of("reasoning_text.done", output_index=0, text="so"),
        of("output_item.done", output_index=0, item=THOUGHT),
    ]
    text = [{**data, "output_index": 1} for data in RESPONSES[2:8]]
    stream = [*RESPONSES[:2], *thought, *text, of("completed", response=whole)]
    assert read("responses", stream)[1].problems == []
    stream[3] = {**stream[3], "delta": "no"}
    assert read("responses", stream)[1].problems == [
        "a text unlike its pieces",
        "a last event with other reasoning than the pieces",
    ]


@pytest.mark.parametrize(
    ("reason", "stop", "read_as"),
    [("end_turn", None, "stop"), ("stop_sequence", "x", "stop"), ("max_tokens", None, "length")],
)
def test_what_ended_a_message(reason, stop, read_as):
    message = {**MESSAGE, "stop_reason": reason, "stop_sequence": stop, "usage": USAGE}
    READERS["messages"](answer := Answer()).whole(message)
    assert answer.reason == read_as
    assert answer.stop == ending_of("messages", read_as == "stop", stop or "")


def test_what_ended_a_response():
    cut = {
        **RESPONSE,
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    READERS["responses"](answer := Answer()).whole({**cut, "output": [TEXT]})
    assert (answer.reason, answer.stop) == ("length", ending_of("responses", False, ""))
    READERS["responses"](answer := Answer()).whole({**RESPONSE, "output": [TEXT]})
    assert (answer.reason, answer.stop) == ("stop", ending_of("responses", True, ""))


def test_bodies_have_the_fields_of_their_endpoint():
    assert sent("messages", CHAT) == {
        "model": "m", "stream": True, "messages": [{"role": "user", "content": "u"}],
        "system": "s", "max_tokens": 3, "stop_sequences": ["x"],
    }  # fmt: skip
    assert sent("responses", CHAT) == {
        "model": "m", "stream": True, "input": [{"role": "user", "content": "u"}],
        "instructions": "s", "max_output_tokens": 3,
    }  # fmt: skip


def test_events_are_read_by_name():
    async def lines():
        for line in (
            "event: a",
            'data: {"x": 1}',
            "",
            ": kept alive",
            "",
            "event: b",
            "data: 2",
            "",
        ):
            yield line

    async def collected():
        return [event async for event in events(lines())]

    assert asyncio.run(collected()) == [("a", {"x": 1}), ("b", 2)]
