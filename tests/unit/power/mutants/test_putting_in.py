"""Mutants in a running process: every function that was made from the source, and nothing after."""

import importlib
import sys

import msgspec
import pytest

from conformance.power.mutants.definitions import InvalidMutantError, SameCodeError
from conformance.power.mutants.mutating import mutants_of
from conformance.power.mutants.putting_in import PutIn
from conformance.report.mutants import Kind

SOURCE = """\
import functools

LIMIT = 3


def add(a, b=1, *, c=2):
    return a + b + c


@functools.lru_cache
def slow(n):
    return n * 2


def maker(n):
    def inner(m):
        return n + m

    return inner


def limited(n=LIMIT):
    return n


def chosen(n, how=True):
    return n if how is True else 0


def looked_up(table):
    return table.get("key", 7)


class Base:
    def start(self):
        self.value = 1


class Cache(Base):
    step = 4

    def start(self):
        super().start()
        self.other = 2

    @property
    def full(self):
        return False

    @staticmethod
    def bound():
        return LIMIT
"""
OTHER = """\
from planted.code import LIMIT, add

held = add


def limited_too(*, n=LIMIT):
    return n
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "code.py").write_text(SOURCE)
    (folder / "other.py").write_text(OTHER)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("planted.code"), importlib.import_module("planted.other")
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted"]:
        del sys.modules[name]


def mutant(function, after, **more):
    (found,) = [
        m
        for m in mutants_of("planted/code.py", SOURCE)
        if (m.function, m.after) == (function, after)
        and all(getattr(m, k) == v for k, v in more.items())
    ]
    return found


def test_whoever_has_imported_a_function_runs_the_mutant(planted):
    code, other = planted
    put_in = PutIn(mutant("add", "return a - b + c"))
    with put_in.active():
        assert (code.add(5), other.add(5), other.held(5)) == (6, 6, 6)
    assert (code.add(5), other.held(5)) == (8, 8)
    with put_in.active():
        assert code.add(5) == 6


def test_a_method_a_property_and_a_static_method_are_changed(planted):
    code, _ = planted
    cache = code.Cache()
    with PutIn(mutant("Cache.full", "return True")).active():
        assert cache.full
    assert not cache.full


def test_a_function_inside_another_is_changed(planted):
    code, _ = planted
    old = code.maker(10)
    with PutIn(mutant("maker.inner", "return n - m")).active():
        assert code.maker(10)(1) == 9
        assert old(1) == 9
    assert (code.maker(10)(1), old(1)) == (11, 11)


def test_what_a_cached_function_gave_before_is_forgotten(planted):
    code, _ = planted
    assert code.slow(4) == 8
    with PutIn(mutant("slow", "return n / 2")).active():
        assert code.slow(4) == 2
    assert code.slow(4) == 8


def test_a_function_may_lose_its_last_use_of_its_class(planted):
    code, _ = planted
    cache = code.Cache()
    with PutIn(changed("super().start()", "pass")).active():
        cache.start()
    assert vars(cache) == {"other": 2}
    cache.start()
    assert cache.value == 1


def test_defaults_are_changed_one_by_one(planted):
    code, _ = planted
    head = "def add(a, b=1, *, c=2):"
    with PutIn(mutant("add", head.replace("b=1", "b=2"), kind=Kind.DEFAULT)).active():
        assert code.add(0) == 4
    with PutIn(mutant("add", head.replace("c=2", "c=3"), kind=Kind.DEFAULT)).active():
        assert code.add(0) == 4
    assert code.add(0) == 3


def test_constants_are_changed_where_they_were_imported_too(planted):
    code, other = planted
    with PutIn(mutant("", "LIMIT = 4")).active():
        assert (code.LIMIT, other.LIMIT, code.Cache.bound()) == (4, 4, 4)
    assert (code.LIMIT, other.LIMIT) == (3, 3)
    with PutIn(mutant("", "LIMIT = 4")).active():
        assert code.limited() == 4
        assert other.limited_too() == 4
    assert (code.limited(), other.limited_too()) == (3, 3)
    with PutIn(mutant("Cache", "step = 5")).active():
        assert code.Cache().step == 5
    assert code.Cache().step == 4


def test_all_is_as_before_after_an_exception(planted):
    code, _ = planted
    with pytest.raises(ZeroDivisionError), PutIn(mutant("add", "return a - b + c")).active():
        raise ZeroDivisionError
    assert code.add(5) == 8


def changed(old, new):
    start = SOURCE.index(old)
    made = mutant("add", "return a - b + c")
    return msgspec.structs.replace(made, start=start, end=start + len(old), text=new)


@pytest.mark.usefixtures("planted")
def test_the_same_code_is_known_as_such():
    with pytest.raises(SameCodeError):
        PutIn(changed("a + b + c", "(a + b) + c"))


@pytest.mark.usefixtures("planted")
def test_what_is_no_program_is_invalid():
    with pytest.raises(InvalidMutantError, match="it is no program"):
        PutIn(changed("a + b + c", "a +"))


def test_a_default_that_a_call_reads_fails_and_one_that_it_gives_does_not(planted):
    code, _ = planted
    (changed, *_) = [
        m for m in mutants_of("planted/code.py", SOURCE) if m.after.startswith("def add(a, b=2")
    ]
    put_in = PutIn(changed)
    assert put_in.is_value
    with put_in.unread():
        assert code.add(1, 2) == 5
        with pytest.raises(TypeError):
            code.add(1)
    assert code.add(1) == 4


def test_a_constant_that_is_read_fails_wherever_it_was_imported(planted):
    code, other = planted
    put_in = PutIn(mutant("", "LIMIT = 4"))
    with put_in.unread():
        for read in (code.limited, other.limited_too):
            with pytest.raises(TypeError):
                read() + 1
    assert (code.limited(), other.limited_too()) == (3, 3)


def test_a_default_that_is_only_compared_by_identity_is_read(planted):
    code, _ = planted
    (changed, *_) = [
        m
        for m in mutants_of("planted/code.py", SOURCE)
        if m.after.startswith("def chosen(n, how=False")
    ]
    with PutIn(changed).unread():
        assert code.chosen(3, True) == 3
        with pytest.raises(TypeError):
            code.chosen(3)
    assert code.chosen(3) == 3


def test_what_a_lookup_gives_fails_where_nothing_is_found(planted):
    code, _ = planted
    put_in = PutIn(mutant("looked_up", 'return table.get("key", 8)'))
    assert put_in.is_value
    with put_in.unread():
        assert code.looked_up({"key": 1}) == 1
        with pytest.raises(KeyError):
            code.looked_up({})
    assert code.looked_up({}) == 7


def test_code_has_no_value_to_be_read(planted):
    assert not PutIn(mutant("add", "return a - b + c")).is_value
