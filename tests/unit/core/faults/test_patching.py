"""What a fault changes is changed inside, and afterwards what it was."""

import contextlib
import inspect
import types

import pytest

from conformance.core.faults.patching import after, before, replace, together, wrap, wrap_each


class Parent:
    def walk(self, by=1):
        return f"walks {by}"

    @classmethod
    def made(cls, name):
        return cls.__name__, name


class Child(Parent):
    pass


def limp(right, self, *args, **options):
    return right(self, *args, **options).replace("walks", "limps")


def test_an_own_attribute_is_put_back():
    walk = Parent.walk
    with replace(Parent, "walk", lambda self: "limps"):
        assert Child().walk() == "limps"
    assert Parent.walk is walk


def test_what_was_inherited_is_inherited_again():
    with replace(Child, "walk", lambda self: "limps"):
        assert Parent().walk() == "walks 1"
        assert Child().walk() == "limps"
    assert "walk" not in vars(Child)
    assert Child().walk() == "walks 1"


def test_an_objects_attribute_is_put_back():
    one = types.SimpleNamespace(rows=3)
    with replace(one, "rows", 1), replace(one, "columns", 2):
        assert vars(one) == {"rows": 1, "columns": 2}
    assert vars(one) == {"rows": 3}


@pytest.mark.parametrize(
    "patch",
    [
        lambda: replace(Parent, "walk", None),
        lambda: wrap(Parent, "walk", limp),
        lambda: before(Parent, "walk", limp),
        lambda: after(Parent, "walk", limp),
        lambda: together(wrap(Parent, "walk", limp), wrap(Child, "walk", limp)),
    ],
)
def test_it_is_put_back_after_an_error_too(patch):
    held = dict(vars(Parent)), dict(vars(Child))
    with contextlib.suppress(ZeroDivisionError), patch():
        assert (dict(vars(Parent)), dict(vars(Child))) != held
        1 / 0  # noqa: B018
    assert (dict(vars(Parent)), dict(vars(Child))) == held


def test_the_wrong_function_gets_the_right_one_and_what_the_caller_gave():
    with wrap(Child, "walk", limp):
        assert Child().walk() == "limps 1"
        assert Child().walk(by=2) == "limps 2"
        assert Parent().walk(3) == "walks 3"


def test_a_class_method_stays_one():
    def made(right, cls, name):
        return right(cls, name.upper())

    with wrap(Parent, "made", made):
        assert Child.made("a") == ("Child", "A")
    assert Child.made("a") == ("Child", "a")


def test_a_function_of_a_module_is_wrapped():
    module = types.ModuleType("steps")
    module.walk = lambda by: by
    with wrap(module, "walk", lambda right, by: right(by) + 1):
        assert module.walk(2) == 3
    assert module.walk(2) == 2


def test_several_classes_are_wrapped_each_with_its_own():
    class Other:
        def walk(self):
            return "also walks"

    with wrap_each((Parent, Other), "walk", limp):
        assert (Parent().walk(), Other().walk()) == ("limps 1", "also limps")


def test_what_runs_before_sees_the_arguments_and_changes_no_result():
    seen = []
    with before(Parent, "walk", lambda self, **options: seen.append(options)):
        assert Parent().walk(by=2) == "walks 2"
    assert seen == [{"by": 2}]


def test_what_runs_after_gives_the_result():
    with after(Parent, "walk", lambda result, self, by: f"{result} of {by}"):
        assert Parent().walk(2) == "walks 2 of 2"


def test_several_patches_of_one_function_lie_within_each_other():
    def twice(right, self):
        return right(self) * 2

    def ended(right, self):
        return right(self) + "."

    with together(wrap(Parent, "walk", twice), wrap(Parent, "walk", ended)):
        assert Parent().walk() == "walks 1walks 1."
    assert Parent().walk() == "walks 1"


def test_a_wrapped_function_still_says_what_it_takes():
    with wrap(Parent, "walk", limp):
        assert list(inspect.signature(Parent.walk).parameters) == ["self", "by"]
