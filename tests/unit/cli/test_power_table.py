"""The kill matrix in words."""

import io

from rich.console import Console

from conformance.cli.power_table import by_class, candidates, faintest, verdict
from conformance.power import Kill, Outcome, Trial


def trial(fault, outcome=Outcome.KILLED, *kills, family="llama", fault_class="masks"):
    return Trial(fault, fault_class, "mlx_lm", family, "float32", 0, outcome, kills)


RAGGED = Kill("ragged", "diverged", ("forced", "free"), 5e5)
WINDOW = Kill("window", "drift", ("forced",), 12.5)
KILLED = (trial("A", Outcome.KILLED, RAGGED, WINDOW), trial("B", Outcome.KILLED, WINDOW))
SURVIVED = trial("C", Outcome.SURVIVED, fault_class="lists")
AWAY = trial("D", Outcome.NOT_APPLICABLE, fault_class="lists")


def shown(table):
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_totals_by_class():
    assert shown(by_class([*KILLED, SURVIVED, AWAY]))[1:] == [
        "lists 2 0 1 1",
        "masks 2 2 0 0",
        "all 4 2 1 1",
    ]


def test_the_faintest_come_first():
    rows = shown(faintest(KILLED))[2:]
    assert [row.split()[0] for row in rows] == ["12.5", "12.5", "5e+05"]
    assert rows[0].endswith("mlx_lm/llama window forced")


def test_what_only_one_catches_is_told_and_what_catches_nothing_alone():
    assert list(candidates(KILLED, complete=True)) == [
        "only scenario window catches: B",
        "each scenario that catches nothing alone may be removed: ragged",
        "only check forced catches: B",
        "each check that catches nothing alone may be removed: free",
    ]


def test_nothing_is_said_of_candidates_where_not_all_scenarios_were_run():
    assert list(candidates(KILLED, complete=False)) == []


def test_the_verdict_names_survivors_and_what_was_applicable_nowhere():
    assert verdict(KILLED) == "OK: 2 of 2 pairs of fault and family were killed"
    assert verdict([*KILLED, SURVIVED, AWAY]) == (
        "FAILED: 1 of 3 pairs of fault and family survived: C in mlx_lm/llama"
        "; applicable in none of these families: D"
    )
