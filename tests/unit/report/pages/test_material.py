"""Results put together."""

import msgspec
import pytest
import results_by_hand

from conformance.core.errors import ReportError
from conformance.core.verdict import Verdict, encode
from conformance.report.explanation import Explanation, Where
from conformance.report.pages.environment import case_slug
from conformance.report.pages.material import merged, read_explanations, read_scripts


def test_files_are_put_together_by_case():
    one = results_by_hand.make_result("mlx_lm/b/ragged/float32/0")
    two = results_by_hand.make_result("mlx_lm/a/ragged/float32/0")
    assert merged([[one], [two]]) == (two, one)


def test_of_the_same_case_the_last_counts():
    old, new = results_by_hand.make_result(verdict=Verdict.CRASH), results_by_hand.make_result()
    assert merged([[old], [new]]) == (new,)


def test_nothing_at_all_is_reported():
    with pytest.raises(ReportError, match="nothing to report"):
        merged([[], []])


# Explanations and scripts from folders -----------------------------------------------------------


def explanation(case, fault=""):
    return Explanation(
        case=case,
        schedule="long_and_short",
        verdict="diverged",
        what="tokens differ",
        where=Where("none"),
        entry=None,
        ingredients=(),
        suffices=None,
        layers=(),
        steps=(),
        opinion="engine",
        relatives=(),
        seconds=1.0,
        fault=fault,
    )


def test_explanations_are_found_by_their_case(tmp_path):
    first, second = explanation("a/b/c/float32/0"), explanation("a/b/d/float32/0")
    (tmp_path / "x.json").write_text(encode(first) + "\n")
    (tmp_path / "y.jsonl").write_text(f"{encode(second)}\n\n")
    assert read_explanations(tmp_path) == {first.case: first, second.case: second}


def test_an_explanation_of_a_fault_is_not_one_of_the_case(tmp_path):
    (tmp_path / "x.json").write_text(encode(explanation("a/b/c/float32/0", fault="B1.mask")))
    assert read_explanations(tmp_path) == {}


def test_what_is_no_explanation_is_reported_with_its_line(tmp_path):
    (tmp_path / "x.json").write_text(f"\n{msgspec.json.encode({'case': 1}).decode()}\n")
    wrong = r"x.json, line 2: not the output of `conformance explain --json`"
    with pytest.raises(ReportError, match=wrong):
        read_explanations(tmp_path)


def test_a_script_is_found_by_the_name_that_its_page_gives(tmp_path):
    result = results_by_hand.make_result()
    (tmp_path / f"{case_slug(result.case)}.py").write_text("print(1)\n")
    (tmp_path / "other.py").write_text("print(2)\n")
    other = results_by_hand.make_result("mlx_lm/llama/wide/float32/0")
    assert read_scripts(tmp_path, [result, other]) == {result.case: "print(1)\n"}


def test_the_script_of_a_known_defect_serves_a_case_that_has_none_of_its_own(tmp_path):
    known = results_by_hand.make_result(known="other, kv-offset")
    own = results_by_hand.make_result("mlx_lm/llama/wide/float32/0", known="kv-offset")
    (tmp_path / "mlx_lm").mkdir()
    (tmp_path / "mlx_lm" / "kv_offset.py").write_text("known\n")
    (tmp_path / f"{case_slug(own.case)}.py").write_text("own\n")
    found = {known.case: "known\n", own.case: "own\n"}
    assert read_scripts(tmp_path, [known, own]) == found


def test_a_script_that_is_no_text_is_reported(tmp_path):
    result = results_by_hand.make_result()
    (tmp_path / f"{case_slug(result.case)}.py").write_bytes(b"\xff\xfe")
    with pytest.raises(ReportError, match="is not UTF-8 text"):
        read_scripts(tmp_path, [result])
