"""Runs that did not come to their end."""

import pytest
from miniatures.plays import Script

from conformance.checks.failure import check_failure
from conformance.core.trace import Failure
from conformance.core.verdict import Verdict

CRASH = Failure("IndexError", "list index out of range", "mlx_lm/generate.py:9", "step 4")


@pytest.mark.parametrize(
    ("unsupported", "verdict"), [(False, Verdict.CRASH), (True, Verdict.UNSUPPORTED)]
)
def test_an_exception_is_a_crash_unless_the_library_says_that_it_cannot(unsupported, verdict):
    script = Script()
    script.free.failure = Failure(**{**vars(CRASH), "unsupported": unsupported})
    (found,) = check_failure(script.play())
    assert found.verdict is verdict
    assert found.mode == "free"
    assert found.got == "IndexError: list index out of range"
    assert "[mlx_lm/generate.py:9, in step 4]" in found.what


def test_a_run_out_of_steps_is_a_hang():
    script = Script()
    script.forced.out_of_steps = True
    (found,) = check_failure(script.play())
    assert (found.verdict, found.mode) == (Verdict.HANG, "forced")
    assert found.what == "requests were unfinished after 8 steps"


def test_each_run_is_reported():
    script = Script()
    script.forced.failure = script.free.failure = CRASH
    script.repeat_forced().out_of_steps = True
    found = check_failure(script.play())
    assert [f.verdict for f in found] == [Verdict.CRASH, Verdict.CRASH, Verdict.HANG]
