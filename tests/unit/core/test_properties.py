"""Properties of functions: the first difference counts, and an error is one."""

import pytest

from conformance.core.properties import Property


def made(problems):
    return Property("p", "lib/a*.py", ("A.*", "f"), problems)


@pytest.mark.parametrize(
    ("problems", "wanted"),
    [
        (list, ""),
        (lambda: iter(["first", "second"]), "first"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: (1 / 0 for _ in range(1)), "ZeroDivisionError: division by zero"),
    ],
)
def test_the_first_difference_or_error_is_given(problems, wanted):
    assert made(problems).problem() == wanted


@pytest.mark.parametrize(
    ("module", "function", "is_about"),
    [
        ("lib/apc.py", "A.find", True),
        ("lib/apc.py", "f", True),
        ("lib/apc.py", "g", False),
        ("lib/b.py", "A.find", False),
    ],
)
def test_a_property_is_about_functions_of_files(module, function, is_about):
    assert made(list).is_about(module, function) is is_about
