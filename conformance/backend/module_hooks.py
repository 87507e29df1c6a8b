"""Records what every module of a model is given and makes, and what the caches hold before it.

Classes are swapped on the instances, as ``perturbation`` does. A pass is one call of the whole
model; all is copied to NumPy when it ends, so that nothing later can change what was recorded.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from conformance.backend.entries import leaves, places

# The counts that the caches of both libraries keep of each row, or of their storage.
_COUNTS = (
    *("offset", "left_padding", "_idx", "_offset", "max_size", "start_position", "rotated"),
    "remainder",
)


# What a language model is given in place of tokens.
_EMBEDDINGS = "inputs_embeds"
_aside = contextvars.ContextVar("aside", default=False)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Passes inside belong to no row: a draft model may be the model that verifies, too."""
    before = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(before)


@dataclass(frozen=True)
class Heard:
    """One call of one module.

    Attributes:
        path: in the tree of modules; empty for the whole model.
        kind: the module's class.
        turn: the how-manieth call of this module in its pass, from 0.
        given: its first array argument, float32; ``None`` where it has none.
        made: its output, or the first array of it, float32.
    """

    path: str
    kind: str
    turn: int
    given: np.ndarray | None
    made: np.ndarray | None


@dataclass(frozen=True)
class Held:
    """What one cache held when a pass began.

    Attributes:
        place: ``3`` or, within a list of caches, ``3.0``; see ``entries.places``.
        kind: the cache's class.
        counts: ``offset``, ``left_padding``, ...: one number, or one for each row.
        arrays: float32 by name, the batch axis first, as they are stored.
    """

    place: str
    kind: str
    counts: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]


@dataclass
class Pass:
    """One call of the model, or of that part of it that takes the caches.

    Its tokens ``[batch, length]``, its caches before, its modules.
    ``heard`` is in the order in which the calls ended: a module after those within it. ``aside``:
    it belongs to no row, see the function of that name.
    """

    tokens: np.ndarray
    held: tuple[Held, ...]
    heard: list[Heard] = field(default_factory=list)
    aside: bool = False


@contextlib.contextmanager
def listening(model: Any, *, caches: bool = True) -> Iterator[list[Pass]]:
    """Inside the block each call of ``model`` is added to the list that is given.

    Args:
        model: of what is no tree of modules nothing is heard.
        caches: whether to read the caches, too.
    """
    passes: list[Pass] = []
    ear = _Ear(model, passes, caches=caches)
    swapped: list[tuple[Module, type]] = []
    seen: set[int] = set()
    try:
        for path, module in model.named_modules() if isinstance(model, Module) else ():
            base = type(module)
            if id(module) not in seen and any("__call__" in vars(kind) for kind in base.__mro__):
                seen.add(id(module))
                swapped.append((module, base))
                module.__class__ = _hearing_class(base, path, ear)
        yield passes
    finally:
        for module, base in reversed(swapped):
            module.__class__ = base


class _Ear:
    """What a pass has given so far; its arrays are copied when it ends."""

    def __init__(self, model: Module, passes: list[Pass], *, caches: bool) -> None:
        self._model = model
        self._passes = passes
        self._caches = caches
        self._open = False
        self._calls: list[tuple[str, str, mx.array | None, mx.array | None]] = []

    def hear(
        self, right: Callable[..., Any], path: str, module: Module, args: Any, kwargs: Any
    ) -> Any:
        # To verify drafts a library calls a part of its model, with the caches of all of it.
        whole = not self._open and (module is self._model or bool(_caches_in(args, kwargs)))
        if whole:
            self._open, self._calls = True, []
            held = _read(_caches_in(args, kwargs)) if self._caches else ()
        given = _kept(_first_array([kwargs.get(_EMBEDDINGS), *args, *kwargs.values()]))
        try:
            made = right(module, *args, **kwargs)
        finally:
            self._open = self._open and not whole
        self._calls.append((path, type(module).__name__, given, _kept(_first_array([made]))))
        if whole:
            heard = _copied(self._calls)
            self._passes.append(Pass(_tokens(args, kwargs), held, heard, _aside.get()))
            self._calls = []
        return made


def _hearing_class(base: type, path: str, ear: _Ear) -> type:
    right: Callable[..., Any] = base.__call__

    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return ear.hear(right, path, self, args, kwargs)

    # A library may ask what module its model is from.
    told = {"__doc__": base.__doc__, "__module__": base.__module__}
    return type(base.__name__, (base,), {"__call__": __call__, **told})


def _copied(calls: Sequence[tuple[str, str, mx.array | None, mx.array | None]]) -> list[Heard]:
    turns: dict[str, int] = {}
    heard = []
    for path, kind, given, made in calls:
        turn = turns.get(path, 0)
        turns[path] = turn + 1
        heard.append(Heard(path, kind, turn, _numpy(given), _numpy(made)))
    return heard


def _kept(array: mx.array | None) -> mx.array | None:
    """Another name for the same numbers: ``x *= 2`` changes what ``x`` itself stands for."""
    return None if array is None else mx.stop_gradient(array)


def _numpy(array: mx.array | None) -> np.ndarray | None:
    if array is None or array.ndim == 0 or array.dtype == mx.complex64:
        return None
    try:
        return np.array(array.astype(mx.float32))
    except ValueError:  # it stands for an array inside a function that is being compiled
        return None


def _first_array(values: Sequence[Any]) -> mx.array | None:
    """The first floating array of two axes or more, within a tuple, list or ``logits``, too.

    Whole numbers are indices, which a batch may count otherwise.
    """
    for value in values:
        if isinstance(value, mx.array):
            if value.ndim >= 2 and mx.issubdtype(value.dtype, mx.floating):
                return value
            continue
        if value is None:
            continue
        inner = value if isinstance(value, tuple | list) else [getattr(value, "logits", None)]
        found = _first_array(inner)
        if found is not None:
            return found
    return None


def _tokens(args: Any, kwargs: Any) -> np.ndarray:
    """``[batch, length]``: the first array of whole numbers that has two axes."""
    for value in (*args, *kwargs.values()):
        whole = isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.integer)
        if whole and value.ndim == 2:
            return np.array(value).astype(np.int64)
    return np.zeros((0, 0), np.int64)


def _caches_in(args: Any, kwargs: Any) -> Sequence[Any]:
    for value in (kwargs.get("cache"), *args):
        if isinstance(value, list | tuple) and value and not isinstance(value[0], mx.array):
            return value
    return ()


def _read(caches: Sequence[Any]) -> tuple[Held, ...]:
    pairs = zip(places(caches), leaves(caches), strict=True)
    return tuple(_held(place, cache) for place, cache in pairs)


def _held(place: str, cache: Any) -> Held:
    counts, arrays = {}, {}
    for name in _COUNTS:
        value = getattr(cache, name, None)
        if isinstance(value, mx.array | int) or _numbers(value):
            counts[name] = np.atleast_1d(np.array(value))
    flat: Any = tree_flatten({k: v for k, v in vars(cache).items() if k not in _COUNTS})
    for name, value in flat:
        if isinstance(value, mx.array) and value.ndim >= 2:
            found = _numpy(value)
            if found is not None:
                arrays[name] = found
    return Held(place, type(cache).__name__, counts, arrays)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)
