"""Cells of a timeline, and how much of them is padding."""

import pytest
from html_pictures import make_picture

from conformance.core.picture import Lane
from conformance.report.pages.timeline import LABELS, timeline_of


def cells(line):
    return {row.name: [cell.style for cell in row.cells] for row in line.rows}


def test_each_request_has_its_cells():
    assert cells(timeline_of(make_picture())) == {
        "a": ["prefill", "prefill", "decode", "decode", "decode", "finished"],
        "b": ["prefill", "prefill", "decode", "decode", "finished"],
        "c": ["queued", "queued", "removed"],
    }


def test_a_request_begins_where_it_arrives():
    line = timeline_of(make_picture())
    width = line.rows[0].cells[1].box.x - line.rows[0].cells[0].box.x
    assert line.rows[2].cells[0].box.x == pytest.approx(LABELS + width + 1)


def test_padding_is_counted_by_rows():
    line = timeline_of(make_picture())
    first = line.rows[1].cells[0]
    assert first.padded == pytest.approx(4 / 6)
    assert first.text == "b, step 0: prefill, 2 prompt tokens, 4 padded positions"
    assert [(work.real, work.padded) for work in line.works] == [
        *((8, 4), (2, 0), (2, 0), (2, 0), (1, 0), (0, 0))
    ]


def one_step(calls, *pieces, decoding=()):
    lanes = [Lane(f"r{n}", "1q", ((0, count),)) for n, count in enumerate(pieces)]
    lanes += [Lane(name, "1d") for name in decoding]
    line = timeline_of(make_picture(lanes=tuple(lanes), calls=(calls,), probes=()))
    return line.works[0].padded, [round(row.cells[0].padded, 2) for row in line.rows]


def test_the_last_token_of_a_prompt_may_have_a_call_of_its_own():
    assert one_step("1x1 2x4", 1, 4, 3) == (1, [0, 0, 0.25])


def test_rows_that_decode_may_share_the_pass():
    assert one_step("2x4", 4, decoding=("d",)) == (3, [0, 0])


def test_where_rows_are_unknown_the_step_is_counted_as_a_whole():
    assert one_step("2x8 3x4", 8, 4, 4) == (12, [0, 0, 0])


def test_no_padding_is_made_up():
    assert one_step("2x4", 4, 4) == (0, [0, 0])
    assert one_step("", 0) == (0, [0])


def test_probes_and_an_early_end_have_their_places():
    line = timeline_of(make_picture(stopped="ValueError in step 6"))
    assert [probe.label for probe in line.probes] == ["unknown_uid"]
    assert line.end.at > line.rows[0].cells[-1].box.x
    assert timeline_of(make_picture()).end is None


def test_long_names_keep_what_distinguishes_them():
    names = ("short", "a_request_with_number_17", "a_request_with_number_18")
    line = timeline_of(make_picture(lanes=tuple(Lane(name, "1q") for name in names)))
    assert [row.short for row in line.rows] == ["short", "a_reques…mber_17", "a_reques…mber_18"]


def test_what_is_left_out_is_counted():
    line = timeline_of(make_picture(steps=206, rows=43))
    assert line.left_out == "200 more steps and 40 more requests are not shown"
    assert timeline_of(make_picture()).left_out == ""


def test_an_empty_picture_can_be_drawn():
    line = timeline_of(make_picture(lanes=(), calls=(), probes=(), steps=0, rows=0))
    assert (line.rows, line.works, line.most) == ((), (), 0)
