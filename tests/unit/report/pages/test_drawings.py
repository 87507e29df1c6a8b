"""The charts of a case's page."""

from html_pictures import make_compared, make_explanation, make_picture

from conformance.report.pages.drawings import caches, differences, layers


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
