"""Mutants of a module's text."""

import textwrap

import pytest

from conformance.power.mutants.mutating import mutants_of
from conformance.report.mutants import Kind

TEXT = '''\
"""Text of the module."""

import os

STEP = 256
KIND = dict[str, int]


def cut(rows: int = 1, *, keep=True):
    """What it does."""
    if rows > 0 and keep:
        raise ValueError("no " + str(rows))
    print("text", 3)
    return [
        rows,
        -1,
    ]


class Cache:
    size = 8

    def grow(self):
        def inner():
            return self.size + 1

        return inner()

    @property
    def full(self):
        return False
'''


def made(text=TEXT):
    return mutants_of("x/y.py", textwrap.dedent(text))


def changes(function, text=TEXT):
    return {(m.before, m.after) for m in made(text) if m.function == function}


def test_each_mutant_is_the_text_with_one_change():
    for mutant in made():
        text = TEXT[: mutant.start] + mutant.text + TEXT[mutant.end :]
        assert text != TEXT
        compile(text, "y.py", "exec")
        old, new = TEXT.splitlines(), text.splitlines()
        assert old[mutant.line - 1].strip() in mutant.before.splitlines()
        assert old[: mutant.line - 1] == new[: mutant.line - 1]


def test_functions_are_named_with_what_they_are_in():
    assert {m.function for m in made()} == {
        "",
        "cut",
        "Cache",
        "Cache.grow.inner",
        "Cache.full",
    }


def test_operators_change_what_they_are_named_after():
    assert changes("Cache.full") == {("return False", "return True")}
    assert ("if rows > 0 and keep:", "if rows >= 0 and keep:") in changes("cut")
    assert ("if rows > 0 and keep:", "if rows > 0 or keep:") in changes("cut")
    assert ("return self.size + 1", "return self.size - 1") in changes("Cache.grow.inner")


def test_what_is_raised_printed_annotated_or_documented_is_left_alone():
    text = " ".join(m.after for m in made())
    for untouched in ("no XX", "str(None)", '"XXtextXX"', "What it", "Text of", "dict[", "import"):
        assert untouched not in text


def test_defaults_and_constants_are_of_a_kind_of_their_own():
    kinds = {(m.before, m.after): m.kind for m in made()}
    head = "def cut(rows: int = 1, *, keep=True):"
    assert kinds[head, head.replace("1", "2")] is Kind.DEFAULT
    assert kinds[head, head.replace("True", "False")] is Kind.DEFAULT
    assert kinds["STEP = 256", "STEP = 257"] is Kind.CONSTANT
    assert kinds["size = 8", "size = 9"] is Kind.CONSTANT
    assert kinds["return False", "return True"] is Kind.BODY


def test_a_statement_of_several_lines_is_reached_by_any_of_them():
    (mutant,) = [m for m in made() if m.before == "-1," and m.operator == "number"]
    assert (mutant.line, mutant.reached_by) == (16, (14, 17))


def test_a_default_is_reached_by_its_function_and_a_constant_by_its_class():
    found = {m.before: m.reached_by for m in made() if m.kind is not Kind.BODY}
    assert found["def cut(rows: int = 1, *, keep=True):"] == (9, 17)
    assert found["size = 8"] == (20, 31)


def test_mutants_that_are_alike_are_counted_and_have_names_of_their_own():
    found = made("def f(a):\n    a = 1\n    a = 1\n")
    ones = [m for m in found if m.after == "a = 2"]
    assert [m.nth for m in ones] == [0, 1]
    assert len({m.name for m in found}) == len(found)


def test_a_name_does_not_hang_on_the_number_of_the_line():
    moved = made("# a line more\n" + TEXT)
    assert {m.name for m in moved} == {m.name for m in made()}


def test_a_data_class_keeps_its_fields():
    text = "@dataclass\nclass A:\n    size: int = 8\n"
    assert made(text) == ()


def test_strings_that_are_the_same_number_are_no_change():
    text = """
        def f(x):
            return float("inf") if x else "inf and more"
    """
    after = {new for _, new in changes("f", text)}
    assert not any('float("INF")' in new for new in after)
    assert any('float("XXinfXX")' in new for new in after)
    assert any('"INF AND MORE"' in new for new in after)


def test_what_is_no_python_is_refused():
    with pytest.raises(Exception, match="Syntax Error"):
        made("def f(:\n")
