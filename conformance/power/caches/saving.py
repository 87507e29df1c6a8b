"""Makes a cache from saved contents of others: from a state, or as kept by prefix caching."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The names of the one file, and of the content next to the tokens.
_KEY, _EXTRA = 41, 7


def reloaded(cache: Any) -> Any:
    """The cache made by ``from_state``; mlx-vlm keeps a part in ``meta_state``."""
    cls = type(cache)
    if len(inspect.signature(cls.from_state).parameters) > 1:
        return cls.from_state(cache.state, cache.meta_state)
    return cls.from_state(cache.state)


def restored(cache: Any, empty: Any) -> Any:
    """The empty cache after its state was set."""
    empty.state = cache.state
    if hasattr(type(empty), "meta_state"):
        empty.meta_state = cache.meta_state
    return empty


def keeps(cache: Any) -> bool:
    """Whether the library's prefix caching has functions that keep such a cache."""
    return _adapters(cache) is not None


def kept(cache: Any, capacity: int | None) -> Any:
    """The cache as kept by the library's prefix caching; ``None`` if it keeps none of the class.

    Args:
        capacity: tokens that must fit in, as for a prompt that continues.
    """
    return _adapters(cache).clone_cache_entry(cache, min_capacity_tokens=capacity, eval_targets=[])


def through_file(cache: Any, tokens: int, capacity: int | None) -> Any:
    """The cache that a restarted server finds in its predecessor's files; ``None`` if none.

    Args:
        tokens: the number of tokens in the cache; the prompt that finds it has one more.
        capacity: as for ``kept``.
    """
    package = type(cache).__module__.partition(".")[0]
    make = importlib.import_module(f"{package}.apc").DiskBlockStore
    prompt = list(range(tokens + 1))
    with tempfile.TemporaryDirectory() as folder:
        before = make(Path(folder))
        # Up to 0.7.0 its own thread writes, until the store is closed, and nothing is returned.
        save = before.save_exact_cache
        known = "synchronous" in inspect.signature(save).parameters
        wrote = save(_KEY, prompt[:-1], _EXTRA, [cache], **({"synchronous": True} if known else {}))
        before.close()
        after = make(Path(folder))
        found = after.find_exact_prefix(prompt, extra_hash=_EXTRA)
        read = after.load_exact_cache(found[0], min_capacity_tokens=capacity) if found else None
        after.close()
    if read is None or wrote is False:
        return None
    if (found, *read[:2]) != ((_KEY, tokens), tuple(prompt[:-1]), _EXTRA):
        raise AssertionError(f"of {tokens} tokens the file gives {found}, {read[:2]}")
    return read[2][0]


def put_together(caches: Sequence[Any], lengths: Sequence[int]) -> Any:
    """A batch of kept caches of these lengths; ``None`` if the library does not join them."""
    return _adapters(caches[0]).merge_cache_entries(list(caches), list(lengths))


def _adapters(cache: Any) -> Any:
    """The module with which mlx-vlm keeps caches; mlx-lm keeps copies."""
    name = f"{type(cache).__module__.partition('.')[0]}.apc_adapters"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None
