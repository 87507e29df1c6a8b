"""Verdicts in order, case ids as text, results as lines of JSON."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.core.errors import ResultError
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict, decode, encode

ORDER = [
    *("exact", "tie", "policy", "unsupported", "vacuous", "cost", "drift", "diverged", "unstable"),
    *("leak", "protocol", "nan", "oracle", "hang", "crash"),
]

RESULT = CaseResult(
    case="e/f/s/float32/0",
    engine="e",
    family="f",
    scenario="s",
    dtype="float32",
    seed=0,
    verdict=Verdict.DRIFT,
    expected=False,
    max_abs_diff=0.5,
    noise=1e-6,
    first_bad_step=2,
    evidence=(Finding(Verdict.DRIFT, "forced", "off", request_id="a", step=2, difference=0.5),),
    versions={"mlx": "1"},
    device="cpu",
    seconds=1.5,
)


def test_the_order_of_severity():
    assert [str(v) for v in sorted(Verdict, key=lambda v: v.severity)] == ORDER


def test_only_exact_and_tie_are_good():
    assert [v for v in Verdict if v.good] == [Verdict.EXACT, Verdict.TIE]


names = st.text(st.characters(codec="ascii", exclude_characters="/"), min_size=1)


@given(st.builds(CaseId, names, names, names, names, st.integers(0)))
def test_any_case_id_reads_back(case):
    assert CaseId.parse(str(case)) == case


@pytest.mark.parametrize(
    "text", ["", "a/b/c/float32", "a/b/c/float32/x", "a/b/c/float32/-1", "a/b/c/d/float32/0"]
)
def test_what_is_no_case_id_is_reported_with_an_example(text):
    with pytest.raises(ResultError) as raised:
        CaseId.parse(text)
    assert str(raised.value) == (
        f"{text!r} is not a case id; it must look like mlx_lm/llama/ragged/float32/0"
    )


def test_case_ids_are_in_order_of_their_parts():
    ids = [CaseId.parse(text) for text in ("b/a/a/a/0", "a/b/a/a/0", "a/a/a/a/10", "a/a/a/a/9")]
    assert [str(case) for case in sorted(ids)] == [
        "a/a/a/a/9",
        "a/a/a/a/10",
        "a/b/a/a/0",
        "b/a/a/a/0",
    ]


def test_a_result_is_one_line_that_reads_back():
    line = encode(RESULT)
    assert "\n" not in line
    assert decode(line) == RESULT


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_cannot_hold_are_null(value):
    finding = msgspec.structs.replace(RESULT.evidence[0], difference=value)
    line = encode(msgspec.structs.replace(RESULT, max_abs_diff=value, evidence=(finding,)))
    assert json.loads(line)["max_abs_diff"] is None
    assert decode(line).max_abs_diff is None
    assert decode(line).evidence[0].difference is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "results.jsonl:3: Input data was truncated"),
        ("{}", "results.jsonl:3: Object missing required field `case`"),
        (
            encode(RESULT).replace('"drift"', '"wobble"', 1),
            "results.jsonl:3: Invalid enum value 'wobble' - at `$.verdict`",
        ),
        (
            encode(RESULT).replace('"seed":0', '"seed":"0"'),
            "results.jsonl:3: Expected `int`, got `str` - at `$.seed`",
        ),
    ],
)
def test_a_line_that_is_no_result_is_reported_with_its_place_and_field(line, words):
    with pytest.raises(ResultError) as raised:
        decode(line, where="results.jsonl:3")
    assert str(raised.value) == words
