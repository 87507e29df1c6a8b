"""Code over several lines."""

import ast

import pytest

from conformance.tools.repro.code import folded, wrapped

LONG = " ".join(f"t{n}" for n in range(40))


@pytest.mark.parametrize("text", [LONG, f"it's {LONG}", f'"{LONG}" and \\ {LONG}', "a-b " * 30])
def test_a_string_is_never_broken(text):
    value = {"text": [text, "short one"], "numbers": list(range(40))}
    assert ast.literal_eval("\n    ".join(folded(repr(value), 60))) == value


def test_lines_are_broken_between_words():
    lines = folded(repr(list(range(60))), 40)
    assert len(lines) > 4
    assert max(map(len, lines)) <= 40


def test_a_long_value_fits_its_width():
    value = {"numbers": list(range(60)), "text": "one two"}
    text = wrapped("CONFIG = ", value, repr(value), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert ast.literal_eval(text.removeprefix("CONFIG = ")) == value
