"""Defaults of lookups: found where a mutant changes nothing else, and taken out."""

import ast

import pytest

from conformance.power.mutants.definitions import is_none_anyway, without_default


@pytest.mark.parametrize(
    ("right", "wrong", "left"),
    [
        ("a = getattr(x, 'n', 0)", "a = getattr(x, 'n', 1)", "a = getattr(x, 'n')"),
        ("a = getattr(x, 'n', 0)", "a = getattr(x, 'n')", "a = getattr(x, 'n')"),
        ("a = t.get('k', 0) + 1", "a = t.get('k', 1) + 1", "a = t.__getitem__('k') + 1"),
        ("a = t.pop('k', None)", "a = t.pop('k')", "a = t.pop('k')"),
        ("a = next(x, None)", "a = next(x, '')", "a = next(x)"),
        # Of one in the default of another the inner one.
        (
            "a = getattr(x, 'n', getattr(y, 'm', 0))",
            "a = getattr(x, 'n', getattr(y, 'm', 1))",
            "a = getattr(x, 'n', getattr(y, 'm'))",
        ),
    ],
)
def test_a_changed_default_is_taken_out(right, wrong, left):
    assert ast.unparse(without_default(right, wrong)) == left


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a = getattr(x, 'n', 0)", "a = getattr(x, 'm', 0)"),
        ("a = getattr(x, 'n', 0)", "a = getattr(x, 0)"),
        ("a = t.get('k', 0) + 1", "a = t.get('k', 0) - 1"),
        ("a = t.get('k')", "a = t.get(None)"),
        ("a = f(x, 0)", "a = f(x, 1)"),
    ],
)
def test_what_changes_anything_else_has_no_such_default(right, wrong):
    assert without_default(right, wrong) is None


def test_get_without_its_none_gives_none():
    assert is_none_anyway("a = t.get('k', None)", "a = t.get('k')")
    assert not is_none_anyway("a = t.get('k', None)", "a = t.get('k', '')")
    assert not is_none_anyway("a = t.get('k', 0)", "a = t.get('k')")
    assert not is_none_anyway("a = t.pop('k', None)", "a = t.pop('k')")
    assert not is_none_anyway("a = t.get('k', None)", "a = t.get(None)")
