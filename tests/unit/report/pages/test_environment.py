"""Escaping, filters and the frame of all pages."""

import jinja2
import pytest

from conformance.report.pages.environment import (
    Page,
    make_environment,
    matrix_link,
    nats,
    number,
    render_page,
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
    text = render_page(environment, "x", here=here, pages=pages)
    assert f'href="{root}matrix.html">Matrix' in text
    assert f'href="{root}assets/style.css"' in text
    assert text.count('aria-current="page"') == (here == "index.html")
