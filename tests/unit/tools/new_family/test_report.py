"""The report of a family that was made."""

import json

import pytest

from conformance.core.verdict import Verdict
from conformance.tools.new_family.draft import Decision, Unshrunk
from conformance.tools.new_family.report import Adopted, as_json, as_markdown, facts_of, shown


def adopted(**changes):
    """A report with nothing to complain of, but for the changes."""
    fields = {
        "name": "mine",
        "source": "mine.json",
        "library": "mlx_lm",
        "module": "llama",
        "caches": ("KVCache",),
        "positions": "RoPE",
        "states": (),
        "kinds": {"model.layers": 2},
        "lost": {},
        "parameters": (8_000_000_000, 100_000),
        "decisions": (Decision("hidden_size", "hidden size", 4096, 64, "tiny"),),
        "unshrunk": (Unshrunk("mystery", [1] * 99, "no rule knows it"),),
        "notes": ("media: left out",),
        "ratio": 12345.6,
        "weakest": "drop token 2",
        "insensitive": "",
        "results": (),
    }
    return Adopted(**{**fields, **changes})


def test_each_field_stands_in_the_report_with_its_reason(result):
    text = as_markdown(adopted(results=(result("ragged", Verdict.EXACT),)))
    assert "| hidden_size | 4096 | 64 | hidden size | tiny |" in text
    assert "- mystery ([1, 1, 1" in text
    assert "no rule knows it" in text
    assert "| ragged | exact |  |" in text
    assert "model.layers: 2 kinds, all kept" in text
    assert "100,000 parameters of 8,000,000,000" in text


def test_the_json_has_it_all(result):
    data = json.loads(as_json(adopted(results=(result("ragged", Verdict.EXACT),))))
    assert data["decisions"][0] == {
        "field": "hidden_size",
        "rule": "hidden size",
        "before": 4096,
        "after": 64,
        "why": "tiny",
    }
    assert data["results"][0]["verdict"] == "exact"


@pytest.mark.parametrize(
    "changes", [{"lost": {"model.layers": ["a"]}}, {"insensitive": "too insensitive"}]
)
def test_what_is_lost_or_insensitive_is_not_good(changes):
    assert adopted().good
    assert not adopted(**changes).good


def test_a_rung_that_fails_is_not_good(result):
    failed = result("ragged", Verdict.DIVERGED, expected=False)
    made = adopted(results=(failed,), left_out=("traffic",))
    assert not made.good
    assert as_markdown(made).endswith("| traffic | not run, as a rung below it fails | |\n")
    assert json.loads(as_json(made))["left_out"] == ["traffic"]


def test_a_known_defect_is_no_failure_and_is_named(result):
    known = adopted(results=(result("window", Verdict.DIVERGED, known="some-defect"),))
    assert known.good
    assert "| window | diverged | some-defect |" in as_markdown(known)


def test_a_lost_kind_is_emphasised():
    (line,) = [x for x in facts_of(adopted(lost={"model.layers": ["Attention"]})) if "LOST" in x]
    assert line == 'model.layers: 2 kinds, 1 LOST: "Attention"'


def test_long_values_are_cut():
    assert len(shown(list(range(1000)))) == 60
