"""File names of case pages."""

import re

import pytest
import results_by_hand

from conformance.report.pages.slugs import case_href, case_slug


def test_a_name_says_which_case_it_is():
    slug = case_slug("mlx_lm/qwen3_5/ragged/float32/0")
    assert slug.startswith("mlx_lm-qwen3_5-ragged-float32-0-")
    assert case_href("mlx_lm/qwen3_5/ragged/float32/0") == f"cases/{slug}.html"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mlx_lm/a/b-c/float32/0", "mlx_lm/a-b/c/float32/0"),
        ("mlx_lm/Klear/ragged/float32/0", "mlx_lm/klear/ragged/float32/0"),
        ("x" * 300 + "/1", "x" * 300 + "/2"),
        ("\ud800", "\ud801"),
    ],
)
def test_cases_that_a_file_name_cannot_distinguish_have_two(one, other):
    assert case_slug(one).lower() != case_slug(other).lower()


@pytest.mark.parametrize("name", [*results_by_hand.HOSTILE, "", "..", "/" * 9, "é" * 400])
def test_any_text_gives_a_harmless_short_name(name):
    assert re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)*-[0-9a-f]{10}", case_slug(name))
    assert len(case_slug(name)) < 120
