"""Malformed requests are what they are named, and what comes back is distinguished."""

import pytest
from miniatures.served import FailsForClients, RefusesWithoutReason, Served, TakesAnything

from conformance.plugins.servers.asking import Question
from conformance.plugins.servers.malformed import KINDS, probe
from conformance.scenarios.served_options import BEYOND

PLAIN = Question(
    "plain",
    {
        "model": "small",
        "input": [{"role": "user", "content": "one"}],
        "max_tokens": 2,
        "temperature": 0.0,
        "stream": False,
    },
)


# A server without a limit takes one of them.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != BEYOND])
def test_a_right_server_refuses_each(kind):
    with Served() as server:
        assert probe(server.url, kind, PLAIN).error.startswith("refused: HTTP 4")


@pytest.mark.parametrize(
    ("server", "kind", "error"),
    [
        (TakesAnything, "zero_max_tokens", None),
        (FailsForClients, "content_number", "HTTP 500: "),
        (RefusesWithoutReason, "content_number", "HTTP 204: no message"),
    ],
)
def test_what_is_no_refusal_is_seen(server, kind, error):
    with server() as running:
        found = probe(running.url, kind, PLAIN).error
    assert found == error or found.startswith(error)


def test_no_answer_is_no_refusal():
    assert probe("http://127.0.0.1:9", "no_json", PLAIN).error.startswith("no answer: ConnectError")
