"""How a fault changes a library: each verb gives a context manager, inside which the change is in.

- ``replace(owner, name, value)``: the attribute is another one.
- ``wrap(owner, name, wrong)``: ``wrong(right, *args, **options)`` runs in place of the function.
- ``wrap_each(owners, name, wrong)``: the same in several classes or modules.
- ``before(owner, name, first)``: ``first(*args, **options)`` runs, then the function.
- ``after(owner, name, then)``: the function runs, then ``then(result, *args, **options)``, which
  gives what the caller gets.
- ``together(*patches)``: several at once.

An ``owner`` is a class, a module or, with ``replace``, any object. Of a method, ``self`` is the
first argument; a class method stays one. A fault's own function calls ``hits.hit()`` where what it
does differs from what is right: that is the witness that the fault took effect. What several
functions of one fault share is in the scope of its injection, so that it lasts as long as that.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

Patch: TypeAlias = AbstractContextManager[None]
# The library's own function, as ``wrong`` gets it.
Right: TypeAlias = Callable[..., Any]


@contextlib.contextmanager
def replace(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` inside the block; afterwards what it was, or not there at all.

    What a class inherits is left alone: the attribute is put on the class itself and taken away.
    """
    missing = object()
    own = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextlib.contextmanager
def wrap(owner: Any, name: str, wrong: Callable[..., Any]) -> Iterator[None]:
    """``wrong(right, *args, **options)`` runs in place of ``owner.name``, which is ``right``."""
    found = inspect.getattr_static(owner, name)
    right = found.__func__ if isinstance(found, classmethod) else found

    # A library may look up which arguments a function takes.
    @functools.wraps(right)
    def changed(*args: Any, **options: Any) -> Any:
        return wrong(right, *args, **options)

    with replace(owner, name, classmethod(changed) if right is not found else changed):
        yield


def wrap_each(owners: Iterable[Any], name: str, wrong: Callable[..., Any]) -> Patch:
    """``wrap`` in several classes or modules."""
    return together(*(wrap(owner, name, wrong) for owner in owners))


def before(owner: Any, name: str, first: Callable[..., None]) -> Patch:
    """``first(*args, **options)`` runs, then ``owner.name``."""

    def changed(right: Right, *args: Any, **options: Any) -> Any:
        first(*args, **options)
        return right(*args, **options)

    return wrap(owner, name, changed)


def after(owner: Any, name: str, then: Callable[..., Any]) -> Patch:
    """``owner.name`` runs, then ``then(result, *args, **options)`` gives what the caller gets."""

    def changed(right: Right, *args: Any, **options: Any) -> Any:
        return then(right(*args, **options), *args, **options)

    return wrap(owner, name, changed)


@contextlib.contextmanager
def together(*patches: Patch) -> Iterator[None]:
    """All of them, one within the other."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
