"""The kill matrix in words."""

import importlib
import inspect
import io

from rich.console import Console

from conformance.app.cli.audit.power import (
    by_class,
    candidates,
    closest,
    faintest,
    print_matrix,
    survivors,
    too_close,
    verdict,
)
from conformance.checks import CHECKS
from conformance.report.trials import Kill, Outcome, Trial, separations


def trial(fault, outcome=Outcome.KILLED, *kills, family="llama", fault_class="masks", **more):
    about = {"dtype": "float32", **more}
    dtype = about.pop("dtype")
    return Trial(fault, fault_class, "mlx_lm", family, dtype, 0, outcome, kills, **about)


RAGGED = Kill("ragged", "diverged", ("forced", "free"), 5e5)
WINDOW = Kill("window", "drift", ("forced",), 12.5)
WHOLE = {"complete": True, "tried": ("ragged", "window", "wide")}
KILLED = (
    trial("A", Outcome.KILLED, RAGGED, WINDOW, **WHOLE),
    trial("B", Outcome.KILLED, WINDOW, **WHOLE),
)
SURVIVED = trial("C", Outcome.SURVIVED, fault_class="lists", tried=("ragged",))
HIDDEN = trial("H", Outcome.HIDDEN, fault_class="lists", tried=("ragged",))
AWAY = trial("D", Outcome.NOT_APPLICABLE, fault_class="lists")


def shown(table):
    return printed(lambda console: console.print(table))


def printed(say):
    out = io.StringIO()
    say(Console(file=out, width=160, highlight=False))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_totals_by_class():
    assert shown(by_class([*KILLED, SURVIVED, HIDDEN, AWAY], "float32"))[2:] == [
        "lists 3 0 1 1 1",
        "masks 2 2 0 0 0",
        "all 5 2 1 1 1",
    ]


def test_the_faintest_come_first():
    rows = shown(faintest(KILLED))[2:]
    assert [row.split()[0] for row in rows] == ["12.5", "12.5", "5e+05"]
    assert rows[0].endswith("mlx_lm/llama window forced")


def test_the_closest_families_come_first_and_those_too_close_are_named():
    apart = separations([*KILLED, trial("A", Outcome.KILLED, RAGGED, family="gpt2", noise=2.0)])
    assert shown(closest(apart))[2:] == [
        "12.5 mlx_lm/llama 12.5 1 B",
        "2.5e+05 mlx_lm/gpt2 5e+05 2 A",
    ]
    assert list(too_close(apart)) == ["separation below 100: mlx_lm/llama (12.5, B)"]
    assert not list(too_close(apart[1:]))


def test_what_only_one_catches_is_printed_and_what_catches_nothing_by_itself():
    lines = list(candidates(KILLED))
    assert lines[:4] == [
        "only scenario window catches: B",
        "may be removed, each scenario that catches nothing alone: ragged",
        "may be removed, each scenario that catches nothing at all: wide",
        "only check forced catches: B",
    ]
    assert lines[4] == "may be removed, each check that catches nothing alone: free"
    assert "protocol" in lines[5]
    assert "forced" not in lines[5]


def test_nothing_is_said_of_candidates_where_not_all_scenarios_were_run():
    assert not list(candidates([SURVIVED, trial("A", Outcome.KILLED, RAGGED)]))


def test_each_check_is_called_as_its_module():
    for check in CHECKS:
        name = check.__module__.rpartition(".")[2]
        assert f'"{name}",' in inspect.getsource(importlib.import_module(check.__module__))


def test_survivors_are_named_with_what_was_tried():
    crashed = trial("E", Outcome.SURVIVED, why="its process crashed")
    assert list(survivors([*KILLED, SURVIVED, crashed])) == [
        "survived: C in mlx_lm/llama float32 (tried ragged)",
        "survived: E in mlx_lm/llama float32 (its process crashed)",
    ]


def test_the_verdict_counts_and_names_what_was_applicable_nowhere():
    assert verdict(KILLED) == "OK: 2 of 2 pairs of fault and family were killed (100.0%)"
    assert verdict([*KILLED, SURVIVED, HIDDEN, AWAY]) == (
        "FAILED: 2 of 3 pairs of fault and family were killed (66.7%)"
        "; 1 are hidden by what is wrong without them"
        "; applicable in none of these families: D"
    )


def test_each_dtype_is_reported_by_itself():
    trials = [*KILLED, trial("C", Outcome.SURVIVED, dtype="bfloat16", tried=("ragged",))]
    lines = printed(lambda console: print_matrix(console, trials))
    assert "OK: 2 of 2 pairs of fault and family were killed (100.0%)" in lines
    assert "FAILED: 0 of 1 pairs of fault and family were killed (0.0%)" in lines
    assert lines.index("float32") < lines.index("bfloat16")
