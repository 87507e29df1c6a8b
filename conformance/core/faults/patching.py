"""Short ways to put a defect into a library: a method or a function of it is exchanged."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced

Injection: TypeAlias = Callable[[Hits], AbstractContextManager[None]]
# Gets the right function and gives the wrong one.
Spoil: TypeAlias = Callable[[Callable[..., Any], Hits], Callable[..., Any]]


def exchange(owner: Any, name: str, spoil: Spoil) -> Injection:
    """An injection that exchanges one function of a class or module; a class method stays one."""

    @contextlib.contextmanager
    def inject(hits: Hits) -> Iterator[None]:
        right = inspect.getattr_static(owner, name)
        wrong: Any
        if isinstance(right, classmethod):
            wrong = classmethod(spoil(right.__func__, hits))
        else:
            wrong = spoil(right, hits)
        with replaced(owner, name, wrong):
            yield

    return inject


def all_of(*injections: Injection) -> Injection:
    """The injections one within the other."""

    @contextlib.contextmanager
    def inject(hits: Hits) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for injection in injections:
                stack.enter_context(injection(hits))
            yield

    return inject


def exchange_in(owners: Sequence[Any], name: str, spoil: Spoil) -> Injection:
    """The same exchange in several classes."""
    return all_of(*(exchange(owner, name, spoil) for owner in owners))


def differs(one: mx.array, other: mx.array) -> bool:
    """Whether two arrays are not the same."""
    return not mx.array_equal(one, other).item()
