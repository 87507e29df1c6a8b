"""Honest denominators."""

import results_by_hand

from conformance.core.inventory import Inventory
from conformance.core.verdict import Verdict
from conformance.report.pages.lanes import lanes


def test_what_was_not_run_counts_as_not_proven():
    lane = next(iter(lanes(results_by_hand.few(), results_by_hand.inventory())))
    assert (lane.engine, lane.dtype) == ("mlx_lm", "float32")
    assert (lane.families_run, lane.families) == (5, 6)
    assert (lane.run, lane.missing, lane.applicable) == (20, 10, 30)
    assert lane.proven + lane.wrong + lane.undecided == lane.run
    assert lane.share == 17 / 30


def test_known_defects_are_wrong_all_the_same():
    lane = next(iter(lanes(results_by_hand.few(), results_by_hand.inventory())))
    assert (lane.wrong, lane.known, lane.unexpected) == (2, 1, 1)


def test_what_says_nothing_is_neither_right_nor_wrong():
    verdicts = (Verdict.UNSUPPORTED, Verdict.POLICY, Verdict.VACUOUS)
    results = [
        results_by_hand.make_result(f"mlx_lm/f/s{n}/float32/0", verdict, expected=True)
        for n, verdict in enumerate(verdicts)
    ]
    (lane,) = lanes(results, Inventory())
    assert (lane.proven, lane.wrong, lane.undecided) == (0, 0, 3)


def test_each_seed_and_dtype_is_a_lane():
    names = ("float32/0", "float32/1", "bfloat16/0")
    results = [results_by_hand.make_result(f"mlx_lm/llama/ragged/{name}") for name in names]
    assert [(lane.dtype, lane.seed) for lane in lanes(results, Inventory())] == [
        ("float32", 0),
        ("float32", 1),
        ("bfloat16", 0),
    ]


def test_of_an_engine_that_is_not_installed_no_share_is_reported():
    (lane,) = lanes([results_by_hand.make_result()], Inventory())
    assert (lane.families, lane.missing, lane.applicable, lane.share) == (None, None, None, None)


def test_a_case_that_applies_no_more_stays_in_the_denominator():
    inventory = Inventory(applicable={"mlx_lm": {"llama": ("repeat",)}})
    (lane,) = lanes([results_by_hand.make_result()], inventory)
    assert (lane.run, lane.missing, lane.applicable) == (1, 1, 2)
