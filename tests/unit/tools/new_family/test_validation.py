"""What is known of a module is known of a new family of it."""

import msgspec
import pytest

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.entries import Defect
from conformance.core.verdict import Verdict
from conformance.tools.new_family.validation import judged

KNOWN = Expectations(
    (
        Defect(
            id="known-defect",
            engines=("e",),
            families=("llama",),
            package="mlx-lm",
            versions=">=0",
            where="somewhere.py:1",
            why="it is wrong",
            script="x.py",
            verdicts={"window": Verdict.DIVERGED},
        ),
    )
)


@pytest.fixture
def judge(result):
    """A rung's result with what is known."""

    def judge(scenario, verdict, module):
        bare = msgspec.structs.replace(result(scenario, verdict), versions={"mlx-lm": "1.0"})
        return judged(bare, KNOWN, module=module)

    return judge


def test_a_defect_of_its_module_is_expected(judge):
    found = judge("window", Verdict.DIVERGED, "llama")
    assert (found.expected, found.known, found.family) == (True, "known-defect", "mine")


def test_a_defect_of_another_module_is_not(judge):
    assert not judge("window", Verdict.DIVERGED, "qwen3").expected
    assert not judge("ragged", Verdict.DIVERGED, "llama").expected


def test_that_a_defect_of_its_module_does_not_show_is_no_failure(judge):
    assert judge("window", Verdict.EXACT, "llama").expected
