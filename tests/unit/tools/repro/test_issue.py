"""The text of an upstream issue says what was measured, and no more."""

import contextlib

from results_by_hand import make_result

from conformance.checks.expectations import Defect
from conformance.core.mends import Mend
from conformance.core.verdict import MendedResult, Verdict
from conformance.tools.repro.issue import Material, issue_text

ENTRY = Defect(
    id="lost-state",
    engines=("mlx_lm",),
    families=("mamba",),
    package="mlx-lm",
    versions="<=0.32.2",
    where="mlx_lm/models/mamba.py:130 and mlx_lm/models/mamba.py:135",
    why="The state is that of padding. With columns that end at cache.lengths all\n  pass.",
    verdicts={"ragged": Verdict.DIVERGED},
)
MEND = Mend(
    "states_end_at_lengths",
    ("lost-state",),
    "States end where each row does.",
    lambda _: contextlib.nullcontext(),
)


def text(mend=MEND, mended=None, why=ENTRY.why):
    result = make_result(verdict=Verdict.DIVERGED, expected=True, known=ENTRY.id, mended=mended)
    entry = Defect(**{**{f: getattr(ENTRY, f) for f in ENTRY.__struct_fields__}, "why": why})
    return issue_text(Material(entry, "import mlx\nprint(1)\n", "1\n", result, mend))


def test_it_has_the_defect_a_script_its_output_and_the_cause():
    found = text().splitlines()
    assert found[0] == "# The state is that of padding"
    assert found[2].startswith("mlx 0.32.4, mlx-lm 0.32.2; cpu")
    assert found[4] == "`llama`, ragged: diverged: request 'b' differs at output token 3."
    start = found.index("```python")
    assert found[start + 1 : start + 4] == ["import mlx", "print(1)", "```"]
    assert found[found.index("It prints:") + 2 :][:3] == ["```text", "1", "```"]
    assert (
        "**Cause** (`mlx_lm/models/mamba.py:130`, `mlx_lm/models/mamba.py:135`): The state is that "
        "of padding. With columns that end at cache.lengths all pass."
    ) in found


def test_the_effect_of_the_mend_is_what_the_case_was_with_it():
    ends = {
        text(mended=MendedResult(Verdict.EXACT, ("lost-state",))): "With it the case is exact.",
        text(
            mended=MendedResult(Verdict.EXACT, ("lost-state", "view"))
        ): "With it, beside the mends of view, the case is exact.",
        text(mended=MendedResult(Verdict.EXACT, ("view",))): "It was not tried on this case.",
        text(): "It was not tried on this case.",
        text(mend=None): "**Mend**: none was tried.",
    }
    for found, end in ends.items():
        assert found.endswith(f"{end}\n")


def test_a_long_first_sentence_is_cut_at_a_part():
    assert text(why=f"Rows lose their state; {'x' * 100}.").startswith("# Rows lose their state\n")
