"""What could not be played is one line for each missing file."""

from results_by_hand import make_finding, make_result

from conformance.core.verdict import Verdict
from conformance.report.not_playable import not_playable
from conformance.report.outcome import Outcome
from conformance.report.terminal import render, summary


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
