"""What may be reused of a prompt: what a request before it had, of the same tenant."""

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.reuse import check_reused
from conformance.core.pooled import PoolCall, Pooled, Prefix
from conformance.core.schedule import Arrival, Request
from conformance.core.verdict import Verdict


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


def computed(counts, *, with_it=None):
    """Findings where a pool found 3 tokens of the prompt of 'b' when it began.

    Args:
        counts: the tokens of 'b' that are processed in the second step and after it.
        with_it: fields of 'c', which begins together with 'b'.
    """
    script = Script()
    first, later, last = (
        Request("a", (1, 2, 3, 9), 5),
        Request("b", (1, 2, 3, 4), 3),
        msgspec.structs.replace(Request("c", (6,), 5), **(with_it or {})),
    )
    script.schedule = msgspec.structs.replace(
        script.schedule, arrivals=(Arrival((first, later, last)),)
    )
    script.free.moments[1].pooled = (Pooled(PoolCall.FIND_SNAPSHOT, Prefix(0, (1, 2, 3, 4)), 0, 3),)
    for moment, count in zip(script.free.moments[1:], counts, strict=False):
        moment.processed = {"b": count} | ({"c": 1} if with_it else {})
    return [(f.verdict, f.request_id, f.expected, f.got) for f in check_reused(script.play())]


def test_what_was_found_need_not_be_computed():
    assert computed([1]) == []


@pytest.mark.parametrize("counts", [[4], [2, 2]])
def test_what_was_found_and_is_computed_again_is_reported(counts):
    said = (Verdict.COST, "b", "at most 1 of 4 tokens computed", "4 tokens")
    assert computed(counts) == [said]
    assert computed(counts, with_it={"prompt": (6,)}) == [said]


def test_of_two_with_one_prompt_that_begin_together_it_is_not_known_who_was_found():
    assert computed([4], with_it={"prompt": (1, 2, 3, 4)}) == []


def test_a_wrong_count_of_right_tokens_is_no_wrong_prefix():
    script = Script()
    first, later = Request("a", (1, 2, 3, 9), 5), Request("b", (1, 2, 3, 4), 3)
    arrivals = (Arrival((first, later, Request("c", (6,), 5))),)
    script.schedule = msgspec.structs.replace(script.schedule, arrivals=arrivals)
    script.free.moments[1].reused = {"b": 4}
    play = script.play()
    (right,) = {(found.what, found.cause) for found in check_reused(play)}
    assert "its tokens are right" in right[0]
    assert right[1] == "the count is wrong, not the prefix"


def test_right_tokens_of_another_tenant_s_prefix_are_not_called_a_wrong_count():
    script = Script()
    first = Request("a", (1, 2, 3, 4, 9), 5, tenant="another")
    arrivals = (Arrival((first, Request("b", (1, 2, 3, 4), 3), Request("c", (6,), 5))),)
    script.schedule = msgspec.structs.replace(script.schedule, arrivals=arrivals)
    script.free.moments[1].reused = {"b": 3}
    (said,) = {(found.what, found.cause) for found in check_reused(script.play())}
    assert said[0] == "reused more of a prompt than any other request of its tenant begins with"
    assert said[1] == "what one tenant's requests left is found for another's"
