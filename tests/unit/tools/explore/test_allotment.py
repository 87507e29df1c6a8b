"""As many rows are judged as asked for, whatever libraries refuse."""

import pytest

from conformance.tools.explore.allotment import LEAST_ROWS, MOST_ROWS, Allotment
from conformance.tools.explore.false_alarms import AlarmResult

WAYS = [("e", family, dtype) for dtype in ("float32", "float16") for family in "abcd"]
REFUSED = {("e", "a", "float16"), ("e", "c", "float16")}


def way_of(unit):
    return unit.engine, unit.family, unit.dtype


def played(allotment, *, refused=(), most=50):
    """Plays all that is drawn; a unit ends with the first schedule that is beyond its rows."""
    done = []
    for _ in range(most):
        units = allotment.units()
        if not units:
            return done
        for unit in units:
            rows = 0 if way_of(unit) in refused else unit.rows + 2
            done.append(AlarmResult(unit, rows=rows, unsupported="" if rows else "no kernel"))
            allotment.take(done[-1])
    raise AssertionError("it never ends")


@pytest.mark.parametrize("cases", [1, 60, 1000, 20_000])
@pytest.mark.parametrize("refused", [set(), REFUSED, set(WAYS[1:])], ids=len)
def test_as_many_rows_are_judged_as_asked_for(cases, refused):
    allotment = Allotment(WAYS, cases, seed=0)
    played(allotment, refused=refused)
    assert allotment.complete
    assert cases <= allotment.rows < cases + 2 * MOST_ROWS * len(WAYS)


def test_what_was_refused_is_not_drawn_again():
    done = played(Allotment(WAYS, 5000, seed=0), refused=REFUSED)
    last = [way_of(item.unit) for item in done[-4:]]
    assert not REFUSED & set(last)


def test_where_all_is_refused_it_ends_and_is_not_complete():
    allotment = Allotment(WAYS, 100, seed=0)
    done = played(allotment, refused=set(WAYS))
    assert {way_of(item.unit) for item in done} == set(WAYS)
    assert not allotment.complete


def test_who_plays_some_rows_and_then_refuses_is_counted_and_not_drawn_again():
    allotment = Allotment(WAYS[:1], 100, seed=0)
    (first, *_) = allotment.units()
    allotment.take(AlarmResult(first, rows=10, unsupported="no kernel"))
    assert allotment.rows == 10
    assert allotment.units() == []


def test_no_schedule_is_drawn_twice():
    done = played(Allotment(WAYS, 5000, seed=0))
    for way in WAYS:
        numbers = [
            number
            for item in done
            if way_of(item.unit) == way
            for number in range(item.unit.first, item.unit.first + item.unit.rows)
        ]
        assert len(set(numbers)) == len(numbers)


def test_few_rows_are_spread_over_dtypes_too_and_units_stay_small():
    units = Allotment(WAYS, 4 * LEAST_ROWS, seed=0).units()
    assert len(units) == 4
    assert len({unit.dtype for unit in units}) == 2
    assert {unit.rows for unit in units} == {LEAST_ROWS}
    assert {unit.rows for unit in Allotment(WAYS, 100_000, seed=0).units()} == {MOST_ROWS}


def test_the_seed_decides_the_order():
    one, same, other = (Allotment(WAYS, 100, seed=seed).units() for seed in (0, 0, 1))
    assert one == same
    assert [way_of(unit) for unit in one] != [way_of(unit) for unit in other]
