"""What a sweep has tried, and why entries have no script."""

import contextlib
import re
from pathlib import Path

import msgspec
import pytest
from results_by_hand import make_result

from conformance.checks.expectations import Defect, load_expectations
from conformance.core.errors import ReproError
from conformance.core.mends import Mend
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import MendedResult, Verdict
from conformance.tools.repro.found import Kind, Reduction, Symptom
from conformance.tools.repro.known_scripts import (
    TABLE,
    KnownScript,
    Material,
    found_before,
    issue_text,
    read_table,
    table_lines,
    without,
)

DOCS = Path(__file__).parents[4] / "docs"
DEFECTS = load_expectations().defects
SHOWN = KnownScript("shown", case="a/b/c/float32/0", lines=40, said="3 nats apart", script="x = 1")
LONG = [KnownScript(name, reason=f"{name}: 61 lines", group="too long") for name in ("a", "b")]
OTHER = KnownScript("c", reason="no words", group="an engine")


def test_a_table_is_read_back_without_its_scripts():
    text = "\n".join(table_lines([SHOWN, *LONG])).encode()
    assert list(read_table(text)) == ["shown", "a", "b"]
    assert read_table(text)["a"] == LONG[0]
    assert read_table(text)["shown"].script == ""
    assert read_table(text)["shown"].shows


def test_what_a_script_is_written_from_is_kept(tmp_path):
    schedule = Schedule("ragged", (Arrival((Request("a", (5, 6), 1),)),))
    reduction = Reduction(
        schedule, Symptom(Verdict.DRIFT, Kind(oracle="pieces"), noise=1e-6), (("rope", "theta"),)
    )
    kept = msgspec.structs.replace(SHOWN, reduction=reduction)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / TABLE).write_text("\n".join(table_lines([kept])))
    assert found_before(tmp_path)["shown"].reduction == reduction
    assert found_before(tmp_path / "scripts") == {}
    (tmp_path / "scripts" / TABLE).write_text("nothing")
    with pytest.raises(ReproError, match=r"table\.jsonl: line 1"):
        found_before(tmp_path)


def test_a_line_of_something_else_is_named():
    text = "\n".join([*table_lines([SHOWN]), "{}"]).encode()
    with pytest.raises(ReproError, match="line 2"):
        read_table(text)


def test_those_without_a_script_stand_by_their_reason_the_most_frequent_first():
    assert list(without([OTHER, SHOWN, *LONG]).items()) == [
        ("too long", ["a", "b"]),
        ("an engine", ["c"]),
    ]


def test_what_counts_as_shown_has_the_schedule_that_its_script_is_written_from():
    made = found_before()
    assert [name for name, item in made.items() if item.shows != (item.reduction is not None)] == []
    # What shows by the script of another entry need not have been tried by itself.
    assert {entry.id for entry in DEFECTS if not entry.script} <= set(made)
    assert set(made) <= {entry.id for entry in DEFECTS}
    # What has no script of its own is shown by one by hand, or by another entry's.
    assert {e.id for e in DEFECTS if not e.script} == {i.entry for i in made.values() if i.shows}


def test_the_page_has_the_results_of_the_sweep():
    made = found_before()
    page = " ".join((DOCS / "repro.md").read_text(encoding="utf-8").split())
    assert f"**{sum(item.shows for item in made.values())} of {len(made)} known defects" in page
    for name, files in (("mlx-lm", "mlx_lm"), ("mlx-vlm", "mlx_vlm")):
        own = [e.id for e in DEFECTS if e.engines[0].startswith(files) and e.id in made]
        shown = sum(made[name].shows for name in own)
        assert re.search(rf"\b{shown} of the {len(own)} of {name}\b", page)
    by_hand = [entry.script for entry in DEFECTS if entry.by_hand]
    named = [e for e in DEFECTS if e.script and not e.by_hand]
    assert f"{len(named)} name an entry whose script shows" in page
    assert f"{len(by_hand)} are shown by the {len(set(by_hand))} scripts by hand" in page


def test_the_page_has_the_reasons_of_the_table():
    page = (DOCS / "repro.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)
    groups = without(found_before().values())
    assert listed == [(str(len(names)), reason) for reason, names in groups.items()]


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
