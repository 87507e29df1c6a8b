"""The list of families without a golden."""

import pytest

from conformance.core.errors import GoldenError
from conformance.tools.golden.exemptions import NAME, load_without


def write(tmp_path, text):
    (tmp_path / NAME).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path


def test_each_family_has_its_reason(tmp_path):
    text = '[toy]\ncalm = "no abacus is so large"\n[more]\n"x.y" = "why"\n'
    assert load_without(write(tmp_path, text)) == {
        ("toy", "calm"): "no abacus is so large",
        ("more", "x.y"): "why",
    }


def test_there_need_be_none(tmp_path):
    assert load_without(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[toy", "not TOML"),
        ('toy = "x"', "field 'toy' must be a table"),
        ("[toy]\ncalm = 1", "field 'toy.calm' must give a reason"),
        ('[toy]\ncalm = ""', "field 'toy.calm' must give a reason"),
        (b"\xff", "is not UTF-8 text"),
    ],
)
def test_a_damaged_list_is_reported_with_its_field(tmp_path, text, sentence):
    with pytest.raises(GoldenError, match=rf"without\.toml: {sentence}"):
        load_without(write(tmp_path, text))
