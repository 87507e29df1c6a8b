"""What came, went and changed, each in its own order."""

from conformance.core.grouping import compared

FOUND = compared({"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 3, "b": 5})


def test_what_only_one_set_has_came_or_went():
    assert FOUND.came == {"d": 4}
    assert FOUND.went == {"a": 1}


def test_what_both_have_is_in_the_order_of_the_second():
    assert list(FOUND.both.items()) == [("c", (3, 3)), ("b", (2, 5))]


def test_only_what_differs_has_changed():
    assert FOUND.changed == {"b": (2, 5)}
