"""A comparison as Markdown."""

from conformance.core.verdict import Verdict
from conformance.report.comparison import compare
from conformance.report.comparison_markdown import MOST_BYTES, markdown

CASE = "mlx_lm/llama/ragged/float32/0"


def test_changed_cells_come_before_anything_else(result):
    text = markdown(compare([result()], [result(verdict=Verdict.DIVERGED)]))
    cell, row = text.index("| `llama` | **`. > X!`** |"), text.index(f"| `{CASE}` |")
    assert cell < row
    assert text.startswith("### Conformance: regressed\n\n1 newly failing, 0 as before\n")


def test_many_changes_fit_into_a_comment_and_what_is_left_out_is_reported(result):
    def run(verdict):
        return [result(case=f"e/f{n}/s{n}/float32/0", verdict=verdict) for n in range(900)]

    text = markdown(compare(run(Verdict.EXACT), run(Verdict.CRASH)))
    assert len(text.encode()) < MOST_BYTES
    assert "more lines are left out" in text


def test_nothing_can_break_the_table(result, finding):
    name = "mlx_lm/@me|<b>`/ragged/float32/0"
    bad = result(name, Verdict.CRASH, evidence=(finding(what="a | b\n`c`"),))
    text = markdown(compare([result(name)], [bad]))
    assert "<br>`` a \\| b `c` `` |" in text
    assert "| `` @me\\|<b>` `` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [3] * len(rows)


def test_versions_are_code(result):
    text = markdown(compare([result(versions={"mlx": "1"})], [result(versions={"mlx": "<2>"})]))
    assert "- `mlx`: `1` -> `<2>`" in text


def test_a_failure_that_is_known_now_is_no_changed_cell(result):
    old, new = (result(verdict=Verdict.DRIFT, expected=known) for known in (False, True))
    text = markdown(compare([old], [new]))
    assert "changed cells" not in text
    assert f"| `{CASE}` | `drift! -> drift` |" in text
    assert "| `llama` | **`~ > ~!`** |" in markdown(compare([new], [old]))
