"""Why an answer ended, and what it leaves out."""

from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.plugins.servers.answers import reason_of, stopped_at
from conformance.plugins.servers.asking import Answer


def test_only_reasons_that_there_are_count():
    assert reason_of(Answer(reason="length")) is FinishReason.LENGTH
    assert reason_of(Answer(reason="done")) is None
    assert reason_of(Answer()) is None


def test_of_several_stop_sequences_none_is_known():
    assert stopped_at(Request("a", (1,), 3, stop=((7, 8),))) == (7, 8)
    assert stopped_at(Request("a", (1,), 3, stop=((7,), (8,)))) == ()
    assert stopped_at(Request("a", (1,), 3)) == ()
