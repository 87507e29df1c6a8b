"""Prompts that the processor is handed in one call, beside each alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from conformance.core.errors import NoScriptError
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.tools.repro import search
from conformance.tools.repro.found import Joined, Kind
from conformance.tools.repro.refusing import Reason
from conformance.tools.repro.search import joined_of

ASKED = {"long": Request("long", (5, 6, 7), 1), "short": Request("short", (8,), 1)}
PIXELS = {name: np.full((1, 2), number) for number, name in enumerate(ASKED)}
ALONE = {
    name: {"pixel_values": PIXELS[name], "kinds": np.ones((1, len(request.prompt)), int)}
    for name, request in ASKED.items()
}
MASK = np.array([[1, 1, 1], [0, 0, 1]])
MADE = {
    "input_ids": np.array([[5, 6, 7], [9, 9, 8]]),
    "attention_mask": MASK,
    "pixel_values": np.concatenate(list(PIXELS.values())),
    "kinds": MASK,
}


def joined(**other):
    return joined_of(lambda: [(tuple(ASKED), MADE | other)], ASKED, ALONE, "case")


def test_what_is_filled_up_and_what_is_joined_as_it_is():
    given, padded = ("pixel_values", "kinds"), ("kinds",)
    assert joined() == (Joined(("long", "short"), 9, right=False, given=given, padded=padded),)


def test_it_sees_on_which_side_prompts_are_filled_up():
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    ids = np.array([[5, 6, 7], [8, 9, 9]])
    (found,) = joined_of(
        lambda: [(tuple(ASKED), {"input_ids": ids, "attention_mask": mask})], ASKED, ALONE, "case"
    )
    assert (found.pad, found.right) == (9, True)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"input_ids": np.array([[5, 6, 7], [9, 9, 4]])}, "other ids"),
        ({"pixel_values": np.zeros((2, 2), int)}, "other pixel_values"),
        ({"pixel_values": np.zeros((3, 2), int)}, "other pixel_values"),
        ({"kinds": np.ones((2, 3), int)}, "other kinds"),
    ],
)
def test_what_is_not_the_same_prompts_side_by_side_is_the_processors_own(other, words):
    with pytest.raises(NoScriptError, match=words) as raised:
        joined(**other)
    assert raised.value.reason == Reason.PROCESSOR


def test_a_processor_that_fails_is_named():
    with pytest.raises(NoScriptError, match="ZeroDivisionError"):
        joined_of(lambda: 1 // 0, ASKED, ALONE, "case")


ORACLE_ONLY = SimpleNamespace(oracle_only=True)


@pytest.fixture
def differing_at(monkeypatch):
    """The single stream differs from the pass without a cache from that output token on."""

    def at(step):
        finding = Finding(
            Verdict.ORACLE, "stateless", "differs", schedule="s", request_id="a", step=step
        )
        outcome = SimpleNamespace(findings=(finding,))
        monkeypatch.setattr(search, "judge_oracle", lambda *_: outcome)

    return at


@pytest.mark.parametrize(("tokens", "shown"), [(3, True), (2, False)])
def test_a_difference_after_the_last_token_is_none(differing_at, tokens, shown):
    differing_at(2)
    schedule = Schedule("s", (Arrival((Request("a", (1,), tokens),)),))
    seen = search.observe(None, None, ORACLE_ONLY, schedule)
    assert (seen is not None) == shown
    if seen is not None:
        assert seen[0].kind == Kind(batch=False, oracle="stateless")
