"""What a case proved before and does not now."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.core.contracts import Cost
from conformance.core.verdict import MendedResult, ScheduleResult, Verdict, WitnessResult
from conformance.report.inner_coverage import less_covered

COST = Cost("rows", 1.0, 2.0)
WHOLE = make_result(
    schedules=(ScheduleResult("a", Verdict.EXACT, costs=(COST,)), ScheduleResult("b", "exact")),
    witnesses=(WitnessResult("padding", ("a",)), WitnessResult("turn", excused="no window")),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"schedules": WHOLE.schedules[:1]}, "1 schedule not played: b"),
        (
            {"schedules": WHOLE.schedules[:1], "left_out": ("b",)},
            "1 schedule not played (left out by the tier): b",
        ),
        ({"witnesses": ()}, "not shown: padding"),
        ({"witnesses": (WitnessResult("padding", excused="x"),)}, "not shown: padding"),
        (
            {"schedules": (ScheduleResult("a", "exact"), WHOLE.schedules[1])},
            "not counted: rows of a",
        ),
        ({"verdict": Verdict.CRASH, "schedules": (), "witnesses": ()}, ""),
        ({"schedules": ()}, "2 schedules not played: a, b"),
    ],
)
def test_each_kind_of_it_is_named(changes, words):
    after = msgspec.structs.replace(WHOLE, **changes)
    assert less_covered(WHOLE, after) == words
    if changes.get("verdict") is None:
        assert less_covered(after, WHOLE) == "", "more is no loss"


def test_a_known_defect_that_is_not_mended_any_more_is_named():
    known = {"expected": True, "known": "x"}
    mended = make_result(
        verdict=Verdict.DIVERGED, **known, mended=MendedResult(Verdict.EXACT, ("x",))
    )
    bare = msgspec.structs.replace(mended, mended=None)
    assert less_covered(mended, bare) == "not played with its known defects mended"
    hidden = msgspec.structs.replace(mended, unmended=("y",))
    assert less_covered(mended, hidden) == "hidden behind what has no mend: y"
    assert less_covered(bare, mended) == ""
