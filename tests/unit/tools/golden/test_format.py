"""Golden files as text: what is written is read back, what is damaged is reported."""

import json

import pytest
from miniatures.goldens import golden, recorded

from conformance.core.errors import GoldenError
from conformance.tools.golden.format import digest, load_golden, parse_golden, to_text

GOLDEN = golden(recorded(), recorded(name="long", tokens=(5, 6)))
TEXT = to_text(GOLDEN)


def test_what_is_written_is_read_back():
    assert parse_golden(TEXT, path="calm.json") == GOLDEN


def test_each_request_is_one_line():
    lines = [line for line in TEXT.splitlines() if '"request_id"' in line]
    assert len(lines) == 2
    assert all(line.startswith('  {"request":') for line in lines)


def test_equal_goldens_have_equal_text():
    assert to_text(golden(recorded(), recorded(name="long", tokens=(5, 6)))) == TEXT


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        (TEXT[: len(TEXT) // 2], "calm.json: not JSON, line"),
        ("[]", "calm.json: field 'format' is None, this release reads 1"),
        (TEXT.replace('"format": 1', '"format": 2'), "field 'format' is 2"),
        (TEXT.replace('"abacus"', '"slide rule"'), "field 'digest' does not fit the content"),
        (TEXT.replace("-2.0", "-2.5", 1), "field 'digest' does not fit the content"),
        (TEXT.replace('"seed": 0', '"seed": "0"'), r"Expected `int`, got `str`.*seed"),
        (TEXT.replace('"device"', '"devise"'), "provenance"),
        (TEXT.replace('"seed": 0', '"seed": 0,\n "more": 1'), "more"),
        (TEXT.replace("-2.0", "NaN", 1), "request 'short': a number is not finite"),
        (TEXT.replace('"tokens":[3,4]', '"tokens":[3]'), "'margins' has not one item for each"),
        (TEXT.replace('"top":[[[3,', '"top":[[[9,'), "request 'short': 'top' lacks token 3"),
        (TEXT.replace('"request_id":"long"', '"request_id":"short"'), "'short' occurs twice"),
    ],
    ids=lambda text: text[:20].strip() if len(text) < 80 else "",
)
def test_a_damaged_file_is_reported_with_its_field(spoilt, sentence):
    with pytest.raises(GoldenError, match=sentence):
        parse_golden(spoilt, path="calm.json")


def test_a_golden_without_requests_proves_nothing():
    with pytest.raises(GoldenError, match="'requests' is empty"):
        parse_golden(to_text(golden()), path="calm.json")


def test_the_digest_covers_the_whole_content():
    raw = json.loads(TEXT)
    assert raw["digest"] == digest(GOLDEN)
    assert digest(golden(recorded(), device="slide rule")) != digest(golden(recorded()))


def test_a_file_that_is_no_text_is_reported(tmp_path):
    (tmp_path / "calm.json").write_bytes(b"\xff\xfe")
    with pytest.raises(GoldenError, match="not UTF-8"):
        load_golden(tmp_path / "calm.json")
