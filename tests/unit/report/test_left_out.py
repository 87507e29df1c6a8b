"""What a run leaves out, with what is known of it."""

import msgspec
from results_by_hand import make_result

from conformance.core.verdict import Verdict
from conformance.report.left_out import LeftOut

A, B, C = (f"mlx_lm/llama/{name}/float32/0" for name in ("ragged", "staggered", "wide"))
RIGHT = make_result(A)
WRONG = make_result(B, Verdict.DIVERGED, expected=False)


def test_nothing_is_said_of_nothing():
    assert LeftOut().notes == LeftOut().problems == ()


def test_the_last_results_are_counted_and_failures_are_named():
    found = LeftOut.of({A: RIGHT, B: WRONG, C: None}, {A, "another"})
    assert found.notes == (
        "not run: 3 cases; last results: exact 1, diverged 1, none is known of 1",
    )
    assert found.problems == (
        f"not run, and not as expected the last time: 1 case: {B} (diverged)",
    )


def test_a_failure_whose_result_is_not_kept_is_a_failure():
    found = LeftOut.of({A: RIGHT, C: None}, {C})
    assert found.problems == (f"not run, and not as expected the last time: 1 case: {C}",)


def test_another_rule_judges_the_results_and_remembers_what_has_none():
    found = LeftOut.of({B: WRONG, C: None}, {C})
    judged = found.judged(lambda result: msgspec.structs.replace(result, expected=True))
    assert judged.failed == (C,)
