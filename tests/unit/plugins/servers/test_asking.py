"""Answers come whole or in pieces, and errors as one line."""

import concurrent.futures
import contextlib
import dataclasses
import threading
import time

import pytest
from miniatures.answering import Leads, Packs
from miniatures.served import CutsStreams, Garbles, Served

from conformance.core.errors import ModelError
from conformance.core.http_clients import models
from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Asking, Question, reason_of, stopped_at


def question(name="a", *, stream=True, **more):
    body = {"model": "small", "input": [{"role": "user", "content": "one two"}], "max_tokens": 5}
    return Question(name, {**body, "stream": stream, "temperature": 0, **more})


def free(server):
    """Whether a server has no rows; it drops one a tick after the client read its end."""
    end = time.monotonic() + 5
    while server.rows and time.monotonic() < end:
        time.sleep(0.01)
    return not server.rows


@pytest.fixture
def ask():
    """Asks a server of a kind once."""

    def asked(kind, asked_for):
        with kind() as server:
            asking = Asking(server.url)
            try:
                return asking.ask(asked_for, 5.0)
            finally:
                asking.close()

    return asked


def test_pieces_joined_are_the_answer_in_one_piece(ask):
    many, one = ask(Served, question()), ask(Served, question(stream=False))
    assert many.answer.text == one.answer.text
    assert len(many.answer.text.split()) == len(many.answer.entries) == 5
    assert many.answer.reason == one.answer.reason == "length"
    assert many.answer.usage["completion_tokens"] == 5
    assert many.ended
    assert not many.error


def test_a_refusal_has_the_status_and_what_the_server_says(ask):
    came = ask(Served, question(max_tokens=0))
    assert came.error.startswith("HTTP 400: ")
    assert "at least 1" in came.error


def test_what_is_no_json_is_no_answer_of_the_api(ask):
    assert "not an answer of the API" in ask(Garbles, question()).error


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_goes_to_no_other_server(ask, stream):
    with Packs() as other:
        came = ask(lambda: Leads(other.url), question(stream=stream))
        assert came.error.startswith(f"HTTP 307 to {other.url}/")
        assert came.error.endswith("redirects are not followed")
        assert not other.asked
        with (
            Leads(other.url) as first,
            pytest.raises(ModelError, match=r"leads to .* not followed"),
        ):
            models(first.url)
        assert not other.asked


@pytest.mark.parametrize("stream", [True, False])
def test_a_compressed_answer_is_one_line_that_says_that_it_is_one(ask, stream):
    came = ask(Packs, question(stream=stream))
    assert "it answers, but the answer is compressed (gzip)" in came.error
    assert came.on_its_way
    with (
        Packs() as server,
        pytest.raises(ModelError, match=r"models: it answers, but .*compressed"),
    ):
        models(server.url)


def test_nobody_there_is_one_line():
    asking = Asking("http://127.0.0.1:9")
    try:
        assert "ConnectError" in asking.ask(question(), 5.0).error
    finally:
        asking.close()


def test_an_answer_that_takes_too_long_is_an_error():
    class Slow(Served):
        tick = 3.0

    with Slow() as server:
        asking = Asking(server.url)
        try:
            assert asking.ask(question(), 0.2).error == "no answer within 0 s"
        finally:
            asking.close()


def test_what_is_asked_when_the_client_closes_ends_without_a_word(caplog):
    class Slow(Served):
        tick = 1.0

    def ask(asking):
        with contextlib.suppress(concurrent.futures.CancelledError):
            asking.ask(question(), 60.0)

    with Slow() as server:
        asking = Asking(server.url)
        waiting = threading.Thread(target=ask, args=(asking,), daemon=True)
        waiting.start()
        while not (server.waiting or server.rows):
            time.sleep(0.01)
        asking.close()
        waiting.join(10)
    assert not waiting.is_alive()
    assert not caplog.records


def test_a_client_that_leaves_gets_nothing_more_and_its_row_is_free():
    with Served() as server:
        asking = Asking(server.url)
        try:
            asking.send(question("a", max_tokens=5000))
            asking.came.get(timeout=5)
            asking.leave("a")
            while not asking.came.empty():
                asking.came.get()
            assert free(server)
            assert asking.came.empty()
        finally:
            asking.close()


def test_an_answer_that_nobody_reads_is_generated_and_gives_nothing():
    with Served() as server:
        asking = Asking(server.url)
        try:
            asking.send(dataclasses.replace(question("a", max_tokens=5), unread=True))
            assert asking.ask(question("b", max_tokens=50), 30).answer.reason == "length"
            assert asking.came.empty()
            asking.leave("a")
        finally:
            asking.close()
        assert free(server)


def test_a_stream_that_ends_early_has_no_reason(ask):
    class Cuts(CutsStreams):
        def cut(self):
            return True

    assert ask(Cuts, question()).answer.reason is None


def test_only_reasons_that_there_are_count():
    assert reason_of(Answer(reason="length")) is FinishReason.LENGTH
    assert reason_of(Answer(reason="done")) is None
    assert reason_of(Answer()) is None


def test_of_several_stop_sequences_none_is_known():
    assert stopped_at(Request("a", (1,), 3, stop=((7, 8),)), 0) == (7, 8)
    several = Request("a", (1,), 3, stop=((7,), (8, 9), (6, 5)))
    assert [stopped_at(several, count) for count in (0, 1, 2, 3)] == [(), (7,), (8, 9), ()]
    assert stopped_at(Request("a", (1,), 3), 0) == ()
