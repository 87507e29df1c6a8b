"""What a file says of known defects is compared with their entries."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.derived import derived, unknown_ids
from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict

ENTRY = """
package = "mlx-lm"
[[defect]]
id = "padding"
families = ["llama"]
versions = ">=0"
where = "x.py:1"
why = "x"
script = "x.py"
verdicts = { ragged = "diverged" }
"""
KNOWN = make_result(verdict=Verdict.DIVERGED, expected=True, known="padding")


@pytest.fixture
def entries(tmp_path):
    (tmp_path / "mlx_lm.toml").write_text(ENTRY)
    return load_expectations(tmp_path)


def test_what_an_entry_explains_is_expected(entries):
    assert derived([KNOWN], entries) == (KNOWN,)
    assert unknown_ids([KNOWN], entries) == set()


@pytest.mark.parametrize("changes", [{"verdict": Verdict.NAN}, {"scenario": "wide"}])
def test_what_none_explains_is_not(entries, changes):
    claimed = msgspec.structs.replace(KNOWN, **changes)
    (found,) = derived([claimed], entries)
    assert not found.expected
    assert found.evidence[-1].what.endswith("padding, of which no entry explains the case")
    assert unknown_ids([claimed], entries) == set()


@pytest.mark.parametrize("known", ["nonsense-1", "padding, nonsense-1"])
@pytest.mark.parametrize(
    "changes", [{}, {"verdict": Verdict.EXACT}, {"versions": {"mlx-lm source": "/x@1"}}]
)
def test_an_id_that_no_entry_has_excuses_nothing(entries, known, changes):
    """Also where an entry explains the case: nobody wrote that id."""
    claimed = msgspec.structs.replace(KNOWN, known=known, **changes)
    (found,) = derived([claimed], entries)
    assert not found.expected
    assert found.evidence[-1].what.endswith("known defect nonsense-1, and no entry has that id")
    assert unknown_ids([claimed], entries) == {"nonsense-1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"mlx-lm": "0.33.0", "mlx-lm source": "/x@1"}},
        {"invocation": Invocation("2026-11-22T14:10:28Z", "conformance run --model x")},
        {"expected": False},
        {"verdict": Verdict.EXACT},
    ],
)
def test_what_only_its_run_can_know_is_taken_as_it_is(entries, changes):
    claimed = msgspec.structs.replace(KNOWN, scenario="wide", **changes)
    assert derived([claimed], entries) == (claimed,)
