"""Wrong calls are refused in words that name what is wrong."""

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request
from conformance.reference.invalid_calls import check_known, check_options, check_requests

GOOD = Request("good", (1, 2, 3), 4)


@pytest.mark.parametrize(
    "name", ["prefill_step_size", "prefill_batch_size", "completion_batch_size", "max_kv_size"]
)
def test_sizes_must_allow_some_work(name):
    check_options(EngineOptions(**{name: 1}))
    with pytest.raises(ValueError, match=name):
        check_options(EngineOptions(**{name: 0}))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("r", (), 4), "prompt is empty"),
        (Request("r", (1,), 0), "max_tokens is 0"),
        (Request("r", (1, 2), 4, segments=(1,)), "differ in length"),
        (Request("r", (1, 2), 4, segments=(2, 0)), "a segment is empty"),
        (Request("good", (1,), 4), "id is in use"),
        (Request("old", (1,), 4), "id is in use"),
    ],
)
def test_requests_that_could_not_be_played_are_refused(request_, words):
    check_requests([GOOD], {"old"})
    with pytest.raises(ValueError, match=words):
        check_requests([GOOD, request_], {"old"})


def test_only_live_requests_can_be_removed():
    check_known(["a"], {"a", "b"})
    with pytest.raises(ValueError, match="'c'"):
        check_known(["a", "c"], {"a", "b"})
