"""Escaping, filters and the frame of all pages."""

import re

import jinja2
import pytest
import results_by_hand

from conformance.core.verdict import Verdict
from conformance.report.pages.environment import (
    MEANINGS,
    Page,
    Renderer,
    brief,
    case_href,
    case_slug,
    coded,
    make_environment,
    matrix_link,
    nats,
    number,
    shown,
)


@pytest.fixture(scope="module")
def environment():
    return make_environment()


def rendered(environment, template, **context):
    return environment.from_string(template).render(**context)


def test_texts_are_escaped_everywhere(environment):
    hostile = '</script><b a="\'">&'
    assert rendered(environment, "{{ x }}", x=hostile) == (
        "&lt;/script&gt;&lt;b a=&#34;&#39;&#34;&gt;&amp;"
    )
    assert "<" not in rendered(environment, "{{ x | tojson }}", x={"a": [hostile]})


def test_marks_that_turn_text_around_are_written_out(environment):
    assert rendered(environment, "{{ x }}", x="a\u202e<b") == r"a\u202e&lt;b"


def test_a_name_that_is_missing_is_an_error(environment):
    with pytest.raises(jinja2.UndefinedError):
        rendered(environment, "{{ misspelt }}")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (0.0, "0"), (1234.5, "1230"), (2.5e9, "2.5e+09"), (1e-7, "1e-07")],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text
    assert nats(value) == (text if value is None else f"{text} nats")


def test_a_link_into_the_matrix_keeps_every_sign():
    assert matrix_link(q="a&b=c #\ud800") == "matrix.html#q=a%26b%3Dc+%23%3F"


@pytest.mark.parametrize(("here", "root"), [("index.html", ""), ("cases/x.html", "../")])
def test_links_lead_to_the_top_from_anywhere(environment, here, root):
    environment = environment.overlay(
        loader=jinja2.ChoiceLoader(
            [jinja2.DictLoader({"x": '{% extends "base.html.j2" %}'}), environment.loader]
        )
    )
    pages = (Page("index.html", "Overview"), Page("matrix.html", "Matrix"))
    text = Renderer(pages, environment).page("x", here)
    assert f'href="{root}matrix.html">Matrix' in text
    assert f'href="{root}assets/style.css"' in text
    assert text.count('aria-current="page"') == (here == "index.html")


# File names of case pages ------------------------------------------------------------------------


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


# Words and harmless texts ------------------------------------------------------------------------


def test_every_verdict_has_a_meaning():
    assert set(MEANINGS) == set(Verdict)


def test_a_long_text_is_cut_to_one_line():
    assert brief("a\n  b", 9) == "a b"
    assert brief("x" * 10, 10) == "x" * 10
    assert brief("x" * 11, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain é 中\n\tnext", "plain é 中\n\tnext"),
        ("a\u202eb", r"a\u202eb"),
        ("\u200b\ufeff\u2066", r"\u200b\ufeff\u2066"),
        ("\x1b[31m\x00\x7f", r"\u001b[31m\u0000\u007f"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text, seen):
    assert shown(text) == seen


def test_names_between_backticks_are_code_and_all_is_escaped():
    text = coded("a: fails at `ragged`: <b>`<i>`\u202e & a lone `")
    assert str(text) == (
        "a: fails at <code>ragged</code>: &lt;b&gt;<code>&lt;i&gt;</code>\\u202e &amp; a lone `"
    )
