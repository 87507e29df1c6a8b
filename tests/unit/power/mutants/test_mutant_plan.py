"""Which mutants are tried, and what is played first."""

from conformance.power.mutants.mutant_plan import in_order, sample, task_for
from conformance.power.mutants.reach import Place, Reached
from conformance.report.mutants import Mutant


def place(family, scenario, schedule, seconds, *, good=True):
    return Place(f"mlx_lm/{family}/{scenario}/float32/0", schedule, seconds, good)


A = place("llama", "ragged", "a", 0.3)
B = place("llama", "ragged", "b", 0.1)
C = place("llama", "wide", "c", 0.05, good=False)
D = place("mamba2", "ragged", "d", 0.2)
E = place("llama", "staggered", "e", 0.4)


def mutants(number):
    return [
        Mutant("m.py", "f", "number", f"x = {n}", f"x = {n + 1}", n, (n, n), 0, 1, "")
        for n in range(number)
    ]


def test_the_cheapest_of_each_case_comes_first_family_by_family():
    assert in_order([A, B, C, D, E]) == (B, E, C, D, A)


def test_another_schedule_comes_before_another_family():
    twin = place("mamba2", "ragged", "a", 0.01)
    others = [place("mamba2", f"rung{n}", "x", 1.0 + n) for n in range(8)]
    ordered = in_order([A, B, twin, E, *others])
    assert ordered[0] == twin
    # Six cases of the first family, then what has another name, then the same in other families.
    assert set(ordered[7:10]) == {*others[5:], B, E} - set(ordered[:7]) - set(ordered[10:])
    assert ordered[-1] == A
    assert len(ordered) == len(set(ordered)) == 12


def test_half_precision_is_played_beside_float32():
    half = Place("mlx_lm/llama/ragged/bfloat16/0", "b", 0.5, good=True)
    assert set(in_order([A, B, half])[:2]) == {B, half}


def test_a_bound_says_what_is_not_played():
    task = task_for("mlx_lm", mutants(1)[0], Reached((A, B, C, D, E), frozenset()), most=2)
    assert (task.places, task.reaching, task.unplayed) == ((B, E), 5, 2)


def test_a_sample_has_so_many_that_are_reached():
    every = mutants(50)
    drawn = sample(every, 5, 1, lambda mutant: mutant.line % 2 == 0)
    assert sum(mutant.line % 2 == 0 for mutant in drawn) == 5
    assert drawn[-1].line % 2 == 0
    assert drawn == sample(every, 5, 1, lambda mutant: mutant.line % 2 == 0)
    assert drawn != sample(every, 5, 2, lambda mutant: mutant.line % 2 == 0)


def test_without_a_number_all_are_tried():
    every = mutants(4)
    assert sample(every, None, 0, lambda _: False) == tuple(every)
    assert len(sample(every, 9, 0, lambda _: True)) == 4
