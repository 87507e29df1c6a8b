"""Sensitivity for people and for programs."""

import json

import pytest
from rich.console import Console

from conformance.app.cli.audit.calibrate import Measured, as_line, table, verdict
from conformance.core.sensitivity import Rounding, Sensitivity, Signal


def measured(*signals, distinct=8, roundings=()):
    return Sensitivity(distinct, 1, 3.0, tuple(Signal(k, "x", n) for k, n in signals), roundings)


SENSITIVE = Measured("sensitive", measured(("drop", 1.0), ("slot", 0.5), ("slot", 0.25)))
INSENSITIVE = Measured("insensitive", measured(("drop", 5e-5)))
REFUSED = Measured("metal", None, problem="no Metal", unsupported=True)
BROKEN = Measured("broken", None, problem="raised")


def row(item):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table([item]))
    return capture.get().splitlines()[1].split()


def test_a_row_has_the_least_signal_of_each_kind():
    assert row(SENSITIVE) == ["sensitive", "1", "-", "0.25", "-", "1e-05", "25000", "8", "ok"]


@pytest.mark.parametrize(
    ("item", "status"),
    [
        (INSENSITIVE, "INSENSITIVE"),
        (Measured("a", measured(("drop", 1.0), distinct=2)), "dull stream"),
        (
            Measured("a", measured(("drop", 1.0), roundings=(Rounding("chunks", 0.1),))),
            "single stream disagrees",
        ),
        (Measured("a", measured(("drop", 1.0)), written=True), "recipe written"),
        (REFUSED, "unsupported: no Metal"),
        (BROKEN, "failed: raised"),
    ],
)
def test_the_status_says_what_is_wrong(item, status):
    assert item.status == status


def test_the_verdict_names_who_is_not_good_enough():
    assert verdict([SENSITIVE, REFUSED]) == (
        "OK: 1 families move by at least 10 times their noise (1 unsupported here)"
    )
    assert verdict([SENSITIVE, INSENSITIVE, BROKEN]).startswith("FAILED: 2 of 3 families")
    assert verdict([SENSITIVE, INSENSITIVE, BROKEN]).endswith(": insensitive, broken")


def test_a_line_of_json_has_every_number():
    line = json.loads(as_line(SENSITIVE, dtype="float32", seed=3))
    assert (line["family"], line["dtype"], line["seed"]) == ("sensitive", "float32", 3)
    assert [signal["nats"] for signal in line["signals"]] == [1.0, 0.5, 0.25]
    assert json.loads(as_line(BROKEN, dtype="float32", seed=0))["status"] == "failed: raised"
