"""The badge."""

import json
from xml.etree import ElementTree as ET

import pytest

from conformance.core.verdict import MendedResult, Verdict
from conformance.report.badge import Badge, badge, endpoint_json, svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("verdicts", "message", "colour"),
    [
        ([], "no cases", "lightgrey"),
        ([(Verdict.UNSUPPORTED, True)], "no cases", "lightgrey"),
        ([(Verdict.EXACT, True), (Verdict.TIE, True)], "2 of 2 conform", "brightgreen"),
        ([(Verdict.EXACT, True), (Verdict.UNSUPPORTED, True)], "1 of 1 conform", "brightgreen"),
        ([(Verdict.EXACT, True), (Verdict.DRIFT, True)], "1 of 2 conform", "green"),
        ([(Verdict.EXACT, True), (Verdict.DRIFT, False)], "1 unexpected, 1 of 2 conform", "red"),
        ([(Verdict.UNSUPPORTED, False)], "1 unexpected, 0 of 1 conform", "red"),
        ([(Verdict.EXACT, False)], "1 unexpected, 1 of 1 conform", "red"),
    ],
)
def test_what_it_says(result, verdicts, message, colour):
    found = badge([result(verdict=verdict, expected=wanted) for verdict, wanted in verdicts])
    assert (found.message, found.colour) == (message, colour)


def test_what_was_run_only_with_known_defects_mended_does_not_conform(result):
    alone = MendedResult(Verdict.EXACT, ("a",), alone=True)
    found = badge([result(expected=True, mended=alone), result(expected=True)])
    assert (found.message, found.colour) == ("1 of 2 conform", "green")


def test_the_endpoint_has_the_fields_that_shields_wants():
    assert json.loads(endpoint_json(Badge("1 of 1 conform", "green"))) == {
        "schemaVersion": 1,
        "label": "batched decoding",
        "message": "1 of 1 conform",
        "color": "green",
    }


def test_the_image_is_svg_that_a_screen_reader_can_read():
    root = ET.fromstring(svg(Badge("3 < 4", "red", 'a "b" & \x00c')))
    assert root.tag == f"{SVG}svg"
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == 'a "b" & \ufffdc: 3 < 4'
    assert [text.text for text in root.iter(f"{SVG}text")] == ['a "b" & \ufffdc', "3 < 4"]


def test_texts_fit_into_their_halves():
    root = ET.fromstring(svg(Badge("12 unexpected, 4310 of 4400 conform", "red")))
    left, right = (float(rect.get("width")) for rect in list(root.iter(f"{SVG}rect"))[1:])
    assert left + right == float(root.get("width"))
    lengths = [float(text.get("textLength")) for text in root.iter(f"{SVG}text")]
    assert lengths[0] < left
    assert lengths[1] < right
