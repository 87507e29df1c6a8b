"""A package imported without its slow parts: they are the real ones as soon as they are used."""

import sys
import typing
from importlib import import_module

import pytest

from conformance.backend.late_names import LateName, import_with_late_names

LOG = "seen = []\n"
SLOW = """
import log
log.seen.append("slow")

class Base:
    limit = 3

class Child(Base):
    pass

def double(number):
    return 2 * number
"""
CORE = """
from typing import Optional, Union
from slow import Base, double

def check(value: Union[int, Base], other: Optional[Base] = None):
    return isinstance(value, Base)

def twice(number):
    return double(number)
"""
INNER = "from slow import Base\n\nclass Wrapper(Base):\n    pass\n"
LATE = {"slow": ("Base", "double")}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Write modules by path; none of them is imported afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def make(core=CORE, init="from . import core\n", **more):
        (tmp_path / "user").mkdir()
        texts = {"log": LOG, "slow": SLOW, "user/__init__": init, "user/core": core, **more}
        for place, text in texts.items():
            (tmp_path / f"{place}.py").write_text(text)

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def core(made):
    """The module that uses slow names, imported without them."""
    made()
    import_with_late_names("user", LATE)
    return sys.modules["user.core"]


def seen():
    """Whether the slow module was run, and how often."""
    return import_module("log").seen


def test_the_slow_module_is_not_imported_with_its_user(core):
    assert seen() == []
    assert "slow" not in sys.modules


def test_a_call_uses_the_real_function(core):
    assert core.twice(4) == core.twice(4) == 8
    assert seen() == ["slow"]


def test_isinstance_and_issubclass_are_those_of_the_real_class(core):
    late = core.Base
    slow = import_module("slow")
    assert core.check(slow.Child())
    assert not core.check(3)
    assert issubclass(slow.Child, late)
    assert not issubclass(int, late)


def test_after_the_first_use_the_real_thing_is_in_its_place(core):
    assert isinstance(core.Base, LateName)
    core.check(1)
    assert core.Base is import_module("slow").Base
    assert isinstance(core.double, LateName), "this one was not used"


def test_what_a_module_has_put_in_its_place_stays(core):
    late, core.Base = core.Base, "patched"
    assert late.limit == 3
    assert core.Base == "patched"


def test_a_subclass_is_one_of_the_real_class(core):
    mine = type("Holder", (), {})  # a class statement asks its bases what they stand for

    class Mine(core.Base, mine):
        pass

    assert Mine.__mro__ == (Mine, import_module("slow").Base, mine, object)


def test_attributes_are_the_real_ones(core):
    late = core.Base
    assert late.limit == 3
    assert late.__name__ == "Base"
    with pytest.raises(AttributeError, match="no attribute 'gone'"):
        _ = late.gone


def test_annotations_can_be_made_of_it(core):
    late = core.Base
    assert late in typing.get_args(core.check.__annotations__["value"])
    assert seen() == []
    assert late in typing.get_args(late | None)
    assert late in typing.get_args(None | late)


def test_a_late_module_of_the_package_itself_is_where_its_import_puts_it(made):
    init = "from . import core\nfrom .inner import Wrapper\n"
    made(init=init, **{"user/inner": INNER})
    import_with_late_names("user", {**LATE, "user.inner": ("Wrapper",)})
    user = sys.modules["user"]
    late = user.Wrapper
    assert seen() == []
    assert user.inner is sys.modules["user.inner"]
    assert user.inner.Wrapper.limit == 3
    assert seen() == ["slow"]
    assert isinstance(user.inner.Wrapper(), late)
    assert user.Wrapper is user.inner.Wrapper
    assert issubclass(user.Wrapper, import_module("slow").Base)


@pytest.mark.parametrize(
    "text",
    [
        "from slow import Base, Child\n",
        "try:\n    from slow import Base, gone\nexcept ImportError:\n    gone = None\n",
        "from slow import Base\nclass Mine(Base):\n    pass\n",
        "from slow import double\nfour = double(2)\n",
        "from slow import double\ntry:\n    four = double(2)\nexcept ImportError:\n    four = 0\n",
        "import slow\nlimit = slow.Base.limit\n",
    ],
    ids=["more", "may lack", "subclass", "call", "call in try", "attribute"],
)
def test_what_is_used_at_once_is_imported_as_usual(made, text):
    made(text)
    import_with_late_names("user", LATE)
    assert not {"slow", "user", "user.core"} & set(sys.modules)
    core = import_module("user.core")
    assert seen()
    assert getattr(core, "four", 4) == 4
    assert not [v for v in vars(core).values() if isinstance(v, LateName)]


def test_where_the_slow_module_is_there_already_nothing_is_changed(made):
    made()
    slow = import_module("slow")
    import_with_late_names("user", LATE)
    assert "user" not in sys.modules
    assert import_module("user.core").Base is slow.Base


@pytest.mark.parametrize(
    "text", ["from slow import Base\nraise RuntimeError('torn')\n", "import slow.inner\n"]
)
def test_a_package_that_fails_fails_at_its_import_as_usual(made, text):
    made(text)
    import_with_late_names("user", LATE)
    assert not {"slow", "user", "user.core"} & set(sys.modules)
    with pytest.raises((RuntimeError, ImportError), match=r"torn|'slow' is not a package"):
        import_module("user")


def test_a_package_that_is_not_installed_is_left_to_its_import():
    import_with_late_names("no_such_package", LATE)
    assert "slow" not in sys.modules
