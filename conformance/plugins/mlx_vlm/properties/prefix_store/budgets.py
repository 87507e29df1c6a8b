"""How many bytes mlx-vlm sets aside for prompts, and how it plans to keep a model's caches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import arrays
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

coordinator: Any = compat.part("apc_coordinator")
turboquant: Any = compat.part("turboquant")
adapters: Any = compat.part("apc_adapters")
caches: Any = compat.part("models.cache")

_CACHE, _ADAPTERS = "mlx_vlm/models/cache.py", "mlx_vlm/apc_adapters.py"
# Columns that a cache grows by; classes whose last step may be cut.
_STEP, _BOUNDED = 256, {"RotatingKVCache"}
_COORDINATOR = "mlx_vlm/apc_coordinator.py"


def budget_properties() -> list[Property]:
    """Those of ``memory_profile`` and of plans of prefill and of prefix caching."""
    profiles = ("CacheMemory.*", "*memory_profile", "cache_nbytes", "cache_memory_components*")
    visited = ("cache_memory_components*", "CheckpointAdapter.memory")
    plans = ("build_*", "cache_spec", "resolve_capability", "CacheSpec.*", "PrefixCachePlan.*")
    more = ("apc_mode", "*eligible", "register_*", "_apc_type_tables", "_has_*", "_custom_*")
    own = ("APCCoordinator.checkpoint_len*", "APCCoordinator.is_checkpoint")
    return [
        Property("budgets: footprints", _CACHE, profiles, _footprints),
        Property("budgets: of caches", "mlx_vlm/*.py", (*profiles, *visited), _of_caches),
        Property("budgets: of prefill", _COORDINATOR, ("PrefillMemoryPlan.*",), _of_prefill),
        Property("plans: of caches", _ADAPTERS, (*plans, *more), _plans),
        Property("plans: of checkpoints", _COORDINATOR, own, _checkpoints),
    ]


def _footprint(
    *sizes: float, step: int, window: int | None, least: int, tokens: int, chunk: int | None
) -> int:
    fixed, each = sizes
    if tokens <= 0:
        return 0
    if window is not None and chunk is not None:
        tokens = min(tokens, window - 1 + chunk)
    columns = math.ceil(max(tokens, least) / max(1, step)) * max(1, step)
    return int(fixed) + math.ceil(columns * each)


def _footprints() -> Iterator[str]:
    """Steps, windows with a piece of prefill beside them, and least sizes."""
    for step, window, least in itertools.product((0, 1, 4), (None, 5), (0, 6)):
        memory = caches.CacheMemory(
            fixed_bytes=10, bytes_per_token=2.5, step=step, window_size=window, min_capacity=least
        )
        for tokens, chunk in itertools.product((-1, 0, 1, 4, 5, 9, 12), (None, 1, 3)):
            options = {"step": step, "window": window, "least": least}
            wanted = _footprint(10, 2.5, **options, tokens=tokens, chunk=chunk)  # type: ignore[arg-type]
            if memory.footprint(tokens, chunk) != wanted:
                yield f"{tokens} tokens of {memory} are {memory.footprint(tokens, chunk)} bytes"
    plain = caches.CacheMemory(bytes_per_token=1)
    if (plain.footprint(7), plain.footprint(7, 2), caches.CacheMemory().footprint(7)) != (7, 7, 0):
        yield "a cache without a step or a window needs another size"


def _fed(cache: Any, tokens: int, rows: int = 1) -> Any:
    keys = mx.ones((rows, 2, tokens, 32))
    cache.update_and_fetch(keys, keys[..., :32])
    mx.eval(cache.state)
    return cache


def _bytes(cache: Any) -> int:
    held = [cache.keys, cache.values] if hasattr(cache, "keys") else cache.state
    return sum(int(array.nbytes) for array in arrays(held))


def _of_caches() -> Iterator[str]:
    """What a cache of so many tokens is said to need is what one of them holds."""
    made: dict[str, Any] = {
        "KVCache": caches.KVCache,
        "QuantizedKVCache": lambda: caches.QuantizedKVCache(group_size=32, bits=8),
        "RotatingKVCache": lambda: caches.RotatingKVCache(max_size=300),
        "BatchKVCache": lambda: caches.BatchKVCache([0]),
        "SimpleKVCache": caches.SimpleKVCache,
    }
    for name, make in made.items():
        for held, asked in itertools.product((1, 255, 256, 257, 290), (1, 255, 257, 299)):
            cache = _fed(make(), held)
            profile = cache.memory_profile(held)
            size, real = _bytes(cache), _bytes(_fed(make(), asked))
            if profile.source_bytes != size or caches.cache_nbytes(cache) != size:
                yield f"{name} of {held} tokens: {profile.source_bytes} bytes, it holds {size}"
            said = profile.footprint(asked)
            # A window is rounded up to whole steps, which a long prompt is not.
            right = real <= said < real + _STEP * size if name in _BOUNDED else said == real
            if profile.fallback or not right:
                what = f"{name} of {held} tokens: one of {asked} needs {said}"
                yield f"{what} bytes, it holds {real}"
    if caches.KVCache().memory_profile(3) != caches.CacheMemory():
        yield "an empty cache needs bytes"
    window = caches.RotatingKVCache(max_size=6)
    if _fed(window, 3).memory_profile(3).window_size != 6:
        yield "a window is not that of its cache"
    buffered = _fed(caches.BufferedRotatingKVCache(max_size=6), 3)
    said = buffered.memory_profile(3)
    if (said.window_size, said.min_capacity) != (7, buffered._target_size()):
        yield f"a buffered window needs {said}"
    chunked = _fed(caches.ChunkedKVCache(8), 3)
    said = chunked.memory_profile(3)
    extra = math.ceil((chunked.step - 1) * said.bytes_per_token)
    if (said.window_size, said.step, said.fixed_bytes) != (9, 1, extra):
        yield f"a chunked cache needs {said}"
    turbo = _fed(turboquant.TurboQuantKVCache(bits=4), 5)
    said = turbo.memory_profile(5)
    if said.source_bytes != _bytes(turbo) or said.step != 256 or not said.bytes_per_token:
        yield f"a cache of TurboQuant needs {said}, it holds {_bytes(turbo)}"
    yield from _components()


def _components() -> Iterator[str]:
    """Of lists of caches each once, as one row of a batch; others by what they hold."""
    one, state = _fed(caches.KVCache(), 4), caches.ArraysCache(2)
    state[0] = mx.ones((1, 3, 5))
    listed = caches.CacheList(one, state)
    size = _bytes(one)
    for given in ([listed, None, (one,), [state]], [listed], [None, one, state, one]):
        found = adapters.cache_memory_components(given, 4)
        if [(m.source_bytes, m.fixed_bytes) for m in found] != [(size, 0), (60, 60)]:
            yield f"the parts of a list of caches are {found}"
    rows = adapters.cache_memory_components([one, state], 4, batch_size=3)
    said = [(m.source_bytes, m.fixed_bytes, m.bytes_per_token) for m in rows]
    each = size / 256
    if said != [(math.ceil(size / 3), 0, each / 3), (20, 20, 0)]:
        yield f"of three rows each needs {said}"
    other = SimpleNamespace(state=[mx.ones(6)], meta_state="x")
    (found_other,) = adapters.cache_memory_components([other], 4)
    if found_other != caches.CacheMemory(source_bytes=24, bytes_per_token=6.0, fallback=True):
        yield f"a cache of another kind needs {found_other}"
    (nothing,) = adapters.cache_memory_components([other], 0)
    if nothing.bytes_per_token != 24:
        yield "a cache of no tokens needs another size for each"
    nested = {"a": [mx.ones(2), None], "b": (mx.ones(3),)}
    twice = [nested, nested]
    if caches.cache_nbytes(twice) != 20 or caches.cache_nbytes(None) != 0:
        yield f"arrays of dictionaries are {caches.cache_nbytes(twice)} bytes"


def _of_prefill() -> Iterator[str]:
    """Twice the rows, each of the longest prefix and the longest rest, less what is held."""
    memory = [
        caches.CacheMemory(bytes_per_token=3, source_bytes=9),
        caches.CacheMemory(5, 7, 2.0, step=4),
    ]
    cases: list[tuple[list[int], list[int] | None, int | None]] = [
        ([5, 9], None, None),
        ([5, 9], [4, 2], 3),
        ([7], [0], 0),
        ([-2, 6], None, -1),
        ([0], None, None),
        ([], None, None),
    ]
    for lengths, prefixes, chunk in cases:
        plan = coordinator.PrefillMemoryPlan()
        plan.observe(memory, live_bytes=0)
        got = plan.prepare(lengths, chunk_size=chunk, prefix_lengths=prefixes)
        counts = [max(0, n) for n in lengths]
        before: list[int] = prefixes or [0] * len(counts)
        wanted = 0
        if any(counts):
            rest = [n - p for n, p in zip(counts, before, strict=True)]
            longest = max(rest)
            most = longest + max(before)
            piece = chunk if chunk and chunk > 0 else None
            wanted = 2 * len(counts) * sum(m.footprint(most, piece) for m in memory)
        if (got, plan.chunk_size) != (wanted, chunk if chunk and chunk > 0 else None):
            yield f"prompts of {lengths} with {prefixes} need {got} bytes, not {wanted}"
        if plan.reserve_bytes(10) != max(0, wanted - 10):
            yield f"beside 10 bytes they need {plan.reserve_bytes(10)}"
    yield from _observed()


def _observed() -> Iterator[str]:
    """What is known of a layout stays where a cache is empty, and grows where it is a guess."""
    plan = coordinator.PrefillMemoryPlan()
    plan.prepare([4])
    known = caches.CacheMemory(source_bytes=8, bytes_per_token=2)
    guess = caches.CacheMemory(source_bytes=8, bytes_per_token=5, fallback=True)
    plan.observe([known, guess], live_bytes=0)
    less = caches.CacheMemory(source_bytes=4, bytes_per_token=1, fallback=True)
    got = plan.observe([caches.CacheMemory(), less], live_bytes=6)
    if [m.bytes_per_token for m in plan.components] != [2, 5] or got != 2 * 4 * 7 - 6:
        yield f"what was known of a layout is {plan.components}"
    plan.observe([known.__class__(source_bytes=1, bytes_per_token=9)] * 2, live_bytes=0)
    if [m.bytes_per_token for m in plan.components] != [9, 9]:
        yield f"what is seen of a layout is {plan.components}"
    keys, values = [mx.ones((1, 2, 4, 8)), mx.ones((1, 2, 0, 8))], [mx.ones((1, 2, 4, 4))] * 2
    plan.observe_kv(keys, values, live_bytes=0)
    said = [(m.source_bytes, m.bytes_per_token) for m in plan.components]
    if said != [(384, 96.0)]:
        yield f"keys and values need {said}"
    cache = _fed(caches.KVCache(), 4)
    size = _bytes(cache)
    both = (
        plan.observe_cache([cache], 4),
        plan.observe_cache([cache], 4, batch_size=2, live_bytes=0),
    )
    if both != (2 * size - size, 2 * size // 2):
        yield f"caches need {both} bytes, they hold {size}"
    restored = [plan.restore_bytes([cache], 4, n) for n in (1, 256, 257)]
    if restored != [size, size, 2 * size]:
        yield f"caches that are restored need {restored} bytes"


def _plans() -> Iterator[str]:
    """Blocks of plain keys and values; whole caches of all else that can be restored."""
    windows = caches.RotatingKVCache(max_size=6), caches.ChunkedKVCache(8)
    listed = caches.CacheList(caches.KVCache(), caches.ArraysCache(1))
    cases: list[tuple[list[Any], str | None, bool]] = [
        ([caches.KVCache(), caches.KVCache()], "block", False),
        ([caches.KVCache(), windows[0]], "exact", True),
        ([windows[1]], "exact", True),
        ([caches.ArraysCache(1)], "exact", True),
        ([listed], "exact", True),
        ([(caches.KVCache(), caches.KVCache())], "exact", False),
        ([caches.KVCache(), object()], None, True),
        ([caches.CacheList()], None, True),
        ([caches.CacheList(caches.KVCache(), object())], None, True),
        ([], None, False),
    ]
    for made, mode, hybrid in cases:
        model = SimpleNamespace(make_cache=lambda made=made: made)
        for plan in (
            adapters.build_prefix_cache_plan(model),
            adapters.build_prefix_cache_plan(SimpleNamespace(language_model=model)),
            adapters.build_prefix_cache_plan_from_caches(made),
        ):
            got = plan.legacy_mode, plan.is_hybrid, len(plan.components), plan.restorable
            if got != (mode, hybrid, len(made), mode is not None):
                yield f"the plan of {[type(c).__name__ for c in made]} is {got}"
        if adapters.apc_mode(made) != mode:
            yield f"the mode of {[type(c).__name__ for c in made]} is {adapters.apc_mode(made)}"
    plain = SimpleNamespace(layers=[None] * 3)
    if len(adapters.build_prefix_cache_plan(plain).components) != 3:
        yield "a model that makes no caches has another plan"
    broken = SimpleNamespace(make_cache=lambda: 1 / 0)
    if adapters.build_prefix_cache_plan(broken).components:
        yield "a model whose caches fail has a plan"
    mixed = [caches.KVCache(), windows[0], caches.KVCache(), caches.RotatingKVCache(max_size=7)]
    plan = adapters.build_prefix_cache_plan_from_caches(mixed)
    groups = [group.layer_indices for group in plan.groups]
    if groups != [(0, 2), (1,), (3,)] or [c.group_id for c in plan.components] != [0, 1, 0, 2]:
        yield f"caches of one kind are {groups}"
    sizes = [adapters.cache_spec(one).window_size for one in (*mixed, windows[1])]
    if sizes != [None, 6, None, 7, 8]:
        yield f"windows are {sizes}"


def _checkpoints() -> Iterator[str]:
    """One at the end, and whole intervals before it, so many as there is room for."""
    model = SimpleNamespace(make_cache=lambda: [caches.ArraysCache(1)])
    for interval, room, size, disk in itertools.product((0, 5, 8), (0, 1, 2, 4), (1, 4), (0, 1)):
        for guard, count, media in (
            (1, 30, ()),
            (3, 31, ()),
            (1, 30, (7,)),
            (1, 3, ()),
            (1, 1, ()),
        ):
            manager = SimpleNamespace(
                exact_cache_guard_tokens=guard,
                checkpoint_interval_tokens=interval,
                _exact_cache_max=room,
                disk=disk or None,
                block_size=size,
                exact_cache_min_tokens=6,
            )
            tokens = [7 if 9 <= n < 12 and media else 0 for n in range(count)]
            got = coordinator.APCCoordinator(manager, model).checkpoint_lengths(tokens, set(media))
            final = count - guard
            wanted = {final} if final > 0 else set()
            budget = room or (2 if disk else 1)
            if interval and budget > 1 and final > 0:
                every = math.ceil(interval / size) * size
                places = list(range(every, final, every))[-(budget - 1) :]
                moved = {12 if media and n < 12 else n for n in places}
                wanted |= {n for n in moved if 6 <= n < final}
            if got != sorted(wanted):
                yield f"states of {count} tokens are kept at {got}, not {sorted(wanted)}"
    other = coordinator.APCCoordinator(
        SimpleNamespace(), SimpleNamespace(make_cache=lambda: [caches.KVCache()])
    )
    if other.is_checkpoint or other.checkpoint_len([1] * 9, set()) != 0:
        yield "states are kept of a model of blocks"
