"""A case as a page."""

from html.parser import HTMLParser

import pytest
from html_pictures import (
    drawn,
    hostile_explanation,
    hostile_picture,
    make_compared,
    make_explanation,
    make_picture,
)
from results_by_hand import HOSTILE, make_result

from conformance.core.verdict import Verdict
from conformance.report.cascades import cascades
from conformance.report.message import message_parts
from conformance.report.pages.case_page import (
    caches,
    differences,
    layers,
    numbers,
    render_case,
    tokens,
)
from conformance.report.pages.environment import Renderer, case_href, shown

PAGES = ()


class Read(HTMLParser):
    """The tags of a page, its text, its attributes by name."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.attributes, self.open = [], "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words += data

    def of(self, name):
        return [value for key, value in self.attributes if key == name]


RENDERER = Renderer(PAGES)  # once: it compiles the templates


def page(result, **more):
    return Read(render_case(result, RENDERER, **more))


def test_the_five_parts_are_those_of_the_terminal():
    result = drawn()
    words = page(result).words
    for label, text in message_parts(result):
        assert label in words
        assert text in words


def test_tokens_stand_side_by_side_and_the_first_other_one_is_marked():
    found = tokens(make_compared())
    assert [(token.expected, token.got) for token in found] == [(5, 5), (9, 8), (7, 7)]
    assert [token.first for token in found] == [False, True, False]
    assert [token.wrong for token in found] == [False, True, True]
    assert [token.moved for token in found] == [False, True, False]
    words = " ".join(page(drawn()).words.split())
    assert "token 1: the single stream has 9, the batch gave 8." in words


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ((5, 9), "token 2: the batch gave none"),
        ((5, 9, 7, 1), "token 3: the single stream had ended"),
        ((5, 9, 7), "All tokens are equal."),
        ((), "token 0: the batch gave none"),
    ],
)
def test_a_token_too_few_or_too_many_is_the_first_that_differs(got, words):
    picture = make_picture(compared=make_compared(got=got))
    assert words in " ".join(page(drawn(picture=picture)).words.split())


def test_numbers_that_were_not_compared_are_distinguished_from_those_that_are_not_finite():
    found = numbers(make_compared(difference=(None,)))
    assert [(one.difference, one.measured) for one in found] == [
        (None, True),
        (None, False),
        (None, False),
    ]


def test_where_nothing_was_compared_the_page_says_so():
    none = make_picture(compared=make_compared(difference=(), noise=(), bad=None))
    assert "No difference is known" in page(drawn(picture=none)).words
    assert "No difference is known" not in page(drawn()).words


def test_each_drawing_has_a_title_a_description_and_its_numbers_as_a_table():
    found = page(drawn(), explanation=make_explanation())
    assert found.tags.count("desc") == found.of("role").count("img") == 4
    labelled = [name for names in found.of("aria-labelledby") for name in names.split()]
    assert set(labelled) <= set(found.of("id"))
    assert len(found.of("id")) == len(set(found.of("id")))
    assert "2x6" not in found.words
    assert "2 x 6" in found.words


def test_the_finding_comes_first_and_leads_to_its_first_case():
    lower = make_result("mlx_lm/llama/repeat/float32/0", Verdict.DRIFT)
    result = drawn()
    (cause,) = cascades([lower, result], ("repeat", "ragged"))
    found = page(result, cause=cause)
    sentence = cause.sentence.replace("`", "")  # names are set as code
    assert sentence in found.words
    assert found.words.index(sentence) < found.words.index("rerun")
    assert f"../{case_href(lower.case)}" in found.of("href")
    assert "the first is" not in page(lower, cause=cause).words


def test_a_result_without_a_picture_has_a_page():
    for verdict in Verdict:
        words = page(drawn(picture=None, verdict=verdict)).words
        assert "What happened" in words
        assert "Cache bytes" not in words


def test_what_the_single_stream_gets_wrong_has_no_timeline():
    alone = make_picture(mode="", steps=0, lanes=(), calls=(), cache_bytes=(), probes=())
    found = page(drawn(picture=alone))
    assert "decoded as a single stream in two ways" in found.words
    assert "the other way gave 8" in " ".join(found.words.split())
    assert found.of("role").count("img") == 1


def test_a_picture_that_holds_next_to_nothing_has_a_page():
    bare = make_picture(lanes=(), calls=(), cache_bytes=(), probes=(), compared=None)
    assert "Cache bytes" not in page(drawn(picture=bare)).words
    silent = make_compared(expected=(), got=(), difference=(), noise=(), margin=(), bad=None)
    assert "No token was produced" in page(drawn(picture=make_picture(compared=silent))).words


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_text(name):
    plain = page(drawn(), explanation=make_explanation(), script="x")
    picture = hostile_picture(name)
    found = page(drawn(picture=picture), explanation=hostile_explanation(name), script=name)
    assert set(found.tags) <= set(plain.tags)
    assert not [key for key, _ in found.attributes if key.startswith("on")]
    assert shown(name) in found.words


# The charts of a case's page ---------------------------------------------------------------------


def test_difference_noise_and_margin_are_lines_and_the_first_bad_token_is_marked():
    chart = differences(make_compared())
    assert [line.name for line in chart.lines] == ["difference", "noise", "margin"]
    assert [point.missing for point in chart.lines[0].points] == [False, False, True]
    bad = chart.lines[0].points[1].x
    assert chart.mark.x < bad < chart.mark.x + chart.mark.width
    assert chart.mark.text == "token 1: the first whose difference exceeds the noise"


def test_many_points_are_small_and_the_mark_is_seen():
    many = differences(make_compared(difference=(0.1,) * 200, bad=150))
    assert many.dense
    assert many.mark.width == 8
    assert not differences(make_compared()).dense


def test_without_a_bad_token_nothing_is_marked():
    assert differences(make_compared(bad=None)).mark is None


def test_without_numbers_there_is_no_chart():
    none = make_compared(difference=(), noise=(), margin=(), bad=None)
    assert differences(none) is None
    assert differences(make_compared(difference=(None,), noise=(), margin=())) is None


def test_without_differences_the_others_are_drawn():
    chart = differences(make_compared(difference=(), bad=None))
    assert [line.name for line in chart.lines] == ["noise", "margin"]


def test_cache_bytes_are_bars_and_what_is_unknown_has_none():
    chart = caches(make_picture())
    assert [bar.text for bar in chart.bars][2:4] == ["step 2: 2048 bytes", "step 4: 1024 bytes"]
    heights = [bar.height for bar in chart.bars]
    assert heights[1] == 2 * heights[0]
    assert heights[-1] == 0
    assert caches(make_picture(cache_bytes=())) is None


def test_the_first_layer_beyond_noise_is_marked():
    chart = layers(make_explanation())
    assert chart.mark.text.startswith("model.layers.2: ")
    third = chart.lines[0].points[2].x
    assert chart.mark.x < third < chart.mark.x + chart.mark.width
    assert layers(make_explanation(layers=())) is None
