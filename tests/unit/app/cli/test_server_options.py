"""``--url``: what answers there, and in which form, is said before anything is played."""

import pytest
from miniatures.answering import Answers, Packs

from conformance.app.cli.server_options import _reach
from conformance.core.errors import ConformanceError


def test_whatever_answers_is_reached():
    with Answers() as server:
        _reach(server.url)


def test_an_answer_that_is_compressed_is_not_taken_for_none():
    with (
        Packs() as server,
        pytest.raises(ConformanceError, match="it answers, but the answer is c"),
    ):
        _reach(server.url)


def test_where_nothing_answers_that_is_said():
    with pytest.raises(ConformanceError, match="no server answers at http://127"):
        _reach("http://127.0.0.1:9")
