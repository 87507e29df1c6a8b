"""How a fault changes a library: each function returns a context manager that makes the change.

- ``replace(owner, name, value)``: set the attribute to another value.
- ``wrap(owner, name, wrong)``: run ``wrong(right, *args, **options)`` in place of the function.
- ``wrap_each(owners, name, wrong)``: the same in several classes or modules.
- ``before(owner, name, first)``: run ``first(*args, **options)``, then the function.
- ``after(owner, name, then)``: run the function, then ``then(result, *args, **options)``, whose
  return value the caller gets.
- ``together(*patches)``: make several changes.

An ``owner`` is a class, a module or, with ``replace``, any object. For a method, ``self`` is the
first argument; a class method stays a class method. A fault's own function calls ``hits.hit()``
where it acts differently from the correct code: the witness that the fault took effect. Several
functions of one fault share state in the scope of its injection, which lasts as long.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from conformance.core.missing_names import lacks

Patch: TypeAlias = AbstractContextManager[None]
# The library's own function, as ``wrong`` receives it.
Right: TypeAlias = Callable[..., Any]


@contextlib.contextmanager
def replace(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set ``owner.name`` to ``value`` inside the block; afterwards restore or delete it.

    Inherited attributes stay: the value is set on the class itself and deleted again.
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
    """Run ``wrong(right, *args, **options)`` in place of ``owner.name``, which is ``right``.

    Raises:
        Unsupported: the library has no such function; the message names it.
    """
    found = inspect.getattr_static(owner, name, None)
    if found is None:
        raise lacks(owner, name)
    right = found.__func__ if isinstance(found, classmethod) else found

    # A library may inspect a function's signature.
    @functools.wraps(right)
    def changed(*args: Any, **options: Any) -> Any:
        return wrong(right, *args, **options)

    with replace(owner, name, classmethod(changed) if right is not found else changed):
        yield


def wrap_each(owners: Iterable[Any], name: str, wrong: Callable[..., Any]) -> Patch:
    """``wrap`` in several classes or modules."""
    return together(*(wrap(owner, name, wrong) for owner in owners))


def before(owner: Any, name: str, first: Callable[..., None]) -> Patch:
    """Run ``first(*args, **options)``, then ``owner.name``."""

    def changed(right: Right, *args: Any, **options: Any) -> Any:
        first(*args, **options)
        return right(*args, **options)

    return wrap(owner, name, changed)


def after(owner: Any, name: str, then: Callable[..., Any]) -> Patch:
    """Run ``owner.name``, then return ``then(result, *args, **options)``."""

    def changed(right: Right, *args: Any, **options: Any) -> Any:
        return then(right(*args, **options), *args, **options)

    return wrap(owner, name, changed)


@contextlib.contextmanager
def together(*patches: Patch) -> Iterator[None]:
    """All patches, nested."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
