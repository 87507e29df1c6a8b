"""Records the input and output of every module of a model, and the caches before each pass.

Classes are swapped on the instances, as ``perturbation`` does. A pass is one call of the whole
model; everything is copied to NumPy when it ends, so that no later change reaches the record.
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

from conformance.backend.cache_entries import leaves, places

# The counts that both libraries' caches keep for each row, or for their storage.
_COUNTS = (
    *("offset", "left_padding", "_idx", "_offset", "max_size", "start_position", "rotated"),
    "remainder",
)


# The input of a language model in place of tokens.
_EMBEDDINGS = "inputs_embeds"
_aside = contextvars.ContextVar("aside", default=False)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Passes inside the block belong to no row: a draft model may also be the verifying model."""
    before = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(before)


@dataclass(frozen=True)
class ModuleCall:
    """One call of one module.

    Attributes:
        path: its path in the tree of modules; empty for the whole model.
        kind: the module's class.
        turn: the index of the call among the module's calls in its pass.
        given: its first array argument, float32; ``None`` if there is none.
        made: its output, or the first array of it, float32.
    """

    path: str
    kind: str
    turn: int
    given: np.ndarray | None
    made: np.ndarray | None


@dataclass(frozen=True)
class CacheState:
    """The content of one cache before a pass.

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
    """One call of the model, or of the part that takes the caches.

    Has its tokens ``[batch, length]``, the caches before it, and the calls of modules. ``calls``
    are in the order in which they ended: a module follows its submodules. ``aside``: the pass
    belongs to no row; see the function with that name.
    """

    tokens: np.ndarray
    caches: tuple[CacheState, ...]
    calls: list[ModuleCall] = field(default_factory=list)
    aside: bool = False


@contextlib.contextmanager
def record_calls(model: Any, *, caches: bool = True) -> Iterator[list[Pass]]:
    """Inside the block each pass of ``model`` is appended to the list that it yields.

    Args:
        model: if it is not a tree of modules, nothing is recorded.
        caches: whether to copy the caches, too.
    """
    passes: list[Pass] = []
    recorder = _Recorder(model, passes, caches=caches)
    swapped: list[tuple[Module, type]] = []
    seen: set[int] = set()
    try:
        for path, module in model.named_modules() if isinstance(model, Module) else ():
            base = type(module)
            if id(module) not in seen and any("__call__" in vars(kind) for kind in base.__mro__):
                seen.add(id(module))
                swapped.append((module, base))
                module.__class__ = _recording_class(base, path, recorder)
        yield passes
    finally:
        for module, base in reversed(swapped):
            module.__class__ = base


class _Recorder:
    """Collects the calls of a pass; their arrays are copied when it ends."""

    def __init__(self, model: Module, passes: list[Pass], *, caches: bool) -> None:
        self._model = model
        self._passes = passes
        self._caches = caches
        self._open = False
        self._calls: list[tuple[str, str, mx.array | None, mx.array | None]] = []

    def record(
        self, right: Callable[..., Any], path: str, module: Module, args: Any, kwargs: Any
    ) -> Any:
        # To verify drafts, a library calls a part of its model with the caches of the whole.
        whole = not self._open and (module is self._model or bool(_caches_in(args, kwargs)))
        if whole:
            self._open, self._calls = True, []
            caches = _read(_caches_in(args, kwargs)) if self._caches else ()
        given = _same_numbers(_first_array([kwargs.get(_EMBEDDINGS), *args, *kwargs.values()]))
        try:
            made = right(module, *args, **kwargs)
        finally:
            self._open = self._open and not whole
        self._calls.append(
            (path, type(module).__name__, given, _same_numbers(_first_array([made])))
        )
        if whole:
            calls = _copied(self._calls)
            self._passes.append(Pass(_tokens(args, kwargs), caches, calls, _aside.get()))
            self._calls = []
        return made


def _recording_class(base: type, path: str, recorder: _Recorder) -> type:
    right: Callable[..., Any] = base.__call__

    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return recorder.record(right, path, self, args, kwargs)

    # A library may look up the module of its model's class.
    shown = {"__doc__": base.__doc__, "__module__": base.__module__}
    return type(base.__name__, (base,), {"__call__": __call__, **shown})


def _copied(calls: Sequence[tuple[str, str, mx.array | None, mx.array | None]]) -> list[ModuleCall]:
    turns: dict[str, int] = {}
    copied = []
    for path, kind, given, made in calls:
        turn = turns.get(path, 0)
        turns[path] = turn + 1
        copied.append(ModuleCall(path, kind, turn, _numpy(given), _numpy(made)))
    return copied


def _same_numbers(array: mx.array | None) -> mx.array | None:
    """A new array of the same numbers: ``x *= 2`` would change ``x`` itself."""
    return None if array is None else mx.stop_gradient(array)


def _numpy(array: mx.array | None) -> np.ndarray | None:
    if array is None or array.ndim == 0 or array.dtype == mx.complex64:
        return None
    try:
        return np.array(array.astype(mx.float32))
    except ValueError:  # a placeholder inside a function that is being compiled
        return None


def _first_array(values: Sequence[Any]) -> mx.array | None:
    """The first floating array with at least two axes, also within a tuple, list or ``logits``.

    Integers are indices, which may differ in a batch.
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
    """``[batch, length]``: the first integer array that has two axes."""
    for value in (*args, *kwargs.values()):
        integers = isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.integer)
        if integers and value.ndim == 2:
            return np.array(value).astype(np.int64)
    return np.zeros((0, 0), np.int64)


def _caches_in(args: Any, kwargs: Any) -> Sequence[Any]:
    for value in (kwargs.get("cache"), *args):
        if isinstance(value, list | tuple) and value and not isinstance(value[0], mx.array):
            return value
    return ()


def _read(caches: Sequence[Any]) -> tuple[CacheState, ...]:
    pairs = zip(places(caches), leaves(caches), strict=True)
    return tuple(_state(place, cache) for place, cache in pairs)


def _state(place: str, cache: Any) -> CacheState:
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
    return CacheState(place, type(cache).__name__, counts, arrays)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)
