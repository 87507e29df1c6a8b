"""What a run comes to."""

import pytest
from results_by_hand import make_finding, make_result

from conformance.core.verdict import Verdict
from conformance.report.outcome import Outcome, duration, not_playable
from conformance.report.terminal import render, summary


def test_a_run_is_ok_only_if_nothing_is_wrong_or_missing(result):
    assert Outcome((result(),)).ok
    assert Outcome((result(verdict=Verdict.DRIFT, expected=True),)).ok
    assert not Outcome((result(expected=False),)).ok
    assert not Outcome((result(),), problems=("uncovered",)).ok
    assert not Outcome((result(),), missing=1).ok


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (0.42, "0.42 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (307, "5 min 07 s"),
        (3599.6, "1 h 00 min"),
        (3720, "1 h 02 min"),
    ],
)
def test_durations_as_text(seconds, text):
    assert duration(seconds) == text


# What could not be played is one line for each missing file --------------------------------------


def lacks(family, file):
    got = f"ImportError: {file}: cannot open shared object file: No such file or directory"
    evidence = (make_finding(Verdict.UNSUPPORTED, got=got),)
    case = f"mlx_vlm/{family}/ragged/float32/0"
    return make_result(case, Verdict.UNSUPPORTED, evidence=evidence, expected=True)


def test_families_are_named_once_and_the_package_with_them():
    results = [lacks("a", "libGL.so.1"), lacks("a", "libGL.so.1"), lacks("b", "libSM.so.6")]
    assert not_playable(results) == (
        "not playable here: mlx_vlm/a: libGL.so.1 is missing; on Debian and Ubuntu "
        "`apt-get install libgl1` brings it",
        "not playable here: mlx_vlm/b: libSM.so.6 is missing; on Debian and Ubuntu "
        "`apt-get install libsm6` brings it",
    )


def test_of_many_families_some_are_named():
    (line,) = not_playable(lacks(f"f{n}", "libGL.so.1") for n in range(9))
    assert "mlx_vlm/f4 and 4 more: libGL" in line


def test_it_is_in_the_summary_of_a_run_that_passes():
    text = render(summary(Outcome((lacks("a", "libGL.so.1"),)), width=100), colour=False)
    assert "not playable here: mlx_vlm/a" in text
    assert text.splitlines()[-1].startswith("OK: 1 case, all as expected")
    assert not_playable([make_result()]) == ()
