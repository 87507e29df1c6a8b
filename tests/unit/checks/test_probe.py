"""Invalid calls: refused clearly, and nothing changed."""

import pytest
from miniatures.plays import Script

from conformance.checks.probe import check_probes
from conformance.core.trace import ProbeResult
from conformance.core.verdict import Verdict


def found_for(*results):
    script = Script()
    script.forced.moments[2].probes = list(results)
    findings = check_probes(script.play())
    assert all(f.verdict is Verdict.PROTOCOL and f.mode == "forced" for f in findings)
    return [f.what for f in findings]


@pytest.mark.parametrize("kind", ["ValueError", "TypeError", "KeyError"])
def test_a_clear_refusal_has_no_finding(kind):
    assert found_for(ProbeResult("empty_prompt", f"{kind}: the prompt is empty")) == []


def test_an_accepted_call():
    assert found_for(ProbeResult("empty_prompt", None)) == [
        "the invalid call 'empty_prompt' was accepted"
    ]


@pytest.mark.parametrize("error", ["IndexError: list index", "AttributeError: x", "ValueErrors: x"])
def test_an_unclear_refusal(error):
    (what,) = found_for(ProbeResult("unknown_uid", error))
    assert (
        what == f"the invalid call 'unknown_uid' was refused with {error}, which names no argument"
    )


def test_each_change_of_state_is_reported_even_after_a_clear_refusal():
    assert found_for(
        ProbeResult("p", "ValueError: no", ("queue: 1 became 2", "bytes: 0 became 8"))
    ) == [
        "the invalid call 'p' changed the queue: 1 became 2",
        "the invalid call 'p' changed the bytes: 0 became 8",
    ]


def test_all_probes_of_a_step_are_looked_at():
    assert len(found_for(ProbeResult("p", None), ProbeResult("q", None))) == 2


def test_a_third_run_is_the_first_once_more_and_says_nothing_new():
    script = Script()
    script.repeat_forced().moments[2].probes = [ProbeResult("p", None)]
    assert check_probes(script.play()) == []
