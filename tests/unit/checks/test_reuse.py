"""What may be reused of a prompt: what a request before it had, of the same tenant."""

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.reuse import check_reused
from conformance.core.schedule import Arrival, Request


def findings(count, **other):
    script = Script()
    first = Request("a", (1, 2, 3, 9), 5)
    later = msgspec.structs.replace(Request("b", (1, 2, 3, 4), 3), **other)
    last = Request("c", (6,), 5)
    script.schedule = msgspec.structs.replace(
        script.schedule, arrivals=(Arrival((first, later, last)),)
    )
    script.free.moments[1].reused = {"b": count}
    return [(found.request_id, found.expected, found.got) for found in check_reused(script.play())]


def test_what_two_prompts_share_may_be_reused():
    assert findings(3) == []


@pytest.mark.parametrize(
    ("other", "most"),
    [({}, 3), ({"tenant": "another"}, 0), ({"prompt": (1, 5, 3, 4)}, 1)],
)
def test_more_than_that_is_reported(other, most):
    assert findings(4, **other) == [("b", f"at most {most} tokens", "4 tokens")]
