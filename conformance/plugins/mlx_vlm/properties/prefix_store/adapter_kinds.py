"""What mlx-vlm's prefix caching says of each class of cache, and of a model that has several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store import samples

adapters: Any = compat.part("apc_adapters")
caches: Any = compat.part("models.cache")
turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/apc_adapters.py"


def adapter_kind_properties() -> list[Property]:
    """Those of capabilities, specs and plans."""
    kinds = (
        *("resolve_capability", "register_*", "_has_explicit_*", "_custom_*", "Capability"),
        *("apc_*", "_apc_type_tables", "", "_is_snapshotable"),
    )
    plans = ("cache_spec", "CacheSpec*", "PrefixCachePlan*", "build_*", "ComponentPlan*")
    return [
        Property("adapters: kinds", _FILE, kinds, _kinds),
        Property("adapters: kinds of other classes", _FILE, kinds, _others),
        Property("adapters: specs", _FILE, (*plans, *kinds), _specs),
        Property("adapters: plans", _FILE, (*plans, *kinds), _plans),
    ]


def _derived(base: str, **attributes: Any) -> type[Any]:
    """A class of somebody else that derives from one of the library's."""
    return type("Derived", (getattr(caches, base),), attributes)


def _windowed(name: str, size: Any) -> Any:
    return _derived("KVCache", **{name: size})()


class _State:
    state = property(lambda _: [])


class _Floats:
    def dequantize_for_apc(self) -> Any:
        return None, None


_PLAIN, _WINDOW, _WHOLE, _LIST, _NONE = (
    *("pageable", "windowed", "checkpoint", "composite"),
    "unsupported",
)


def _own() -> dict[str, list[Any]]:
    """The library's own classes, by their kind."""
    turbo = turboquant.TurboQuantKVCache(bits=4), turboquant.BatchTurboQuantKVCache([0], bits=4)
    batches = caches.BatchKVCache([0]), caches.BatchQuantizedKVCache([0])
    return {
        _PLAIN: [
            *(caches.KVCache(), caches.QuantizedKVCache(), caches.SimpleKVCache()),
            *(*batches, *turbo),
        ],
        _WINDOW: [
            *(caches.RotatingKVCache(max_size=6), caches.BatchRotatingKVCache(6, [0])),
            caches.ChunkedKVCache(6),
        ],
        _WHOLE: [
            *(caches.ArraysCache(1), caches.PoolingCache(2), caches.BatchPoolingCache(2, [0])),
            caches.StaticPrefixKVCache(6),
        ],
        _LIST: [caches.CacheList(caches.KVCache()), (caches.KVCache(),)],
    }


def _kinds() -> Iterator[str]:
    """Of the library's own classes, and which are kept as blocks or whole."""
    names = [kind.value for kind in adapters.Capability]
    if names != [_PLAIN, _WINDOW, _WHOLE, _LIST, _NONE]:
        yield f"kinds are named {names}"
    for kind, found in _own().items():
        for one in found:
            with _before_any():
                got = adapters.resolve_capability(one).value
                whole = adapters.apc_exact_eligible(one), adapters.apc_block_eligible(one)
            if got != kind:
                yield f"a {type(one).__name__} is {got}"
            blocks = type(one) is caches.KVCache or hasattr(one, "dequantize_for_apc")
            if whole != (True, blocks):
                yield f"whether a {type(one).__name__} is kept whole, or as blocks: {whole}"


@contextmanager
def _before_any() -> Iterator[None]:
    """The state in which the module is imported: no class is registered."""
    fresh: dict[str, Any] = {
        "_DEFAULTS_REGISTERED": False,
        "_APC_EXACT_TYPES": None,
        "_APC_BLOCK_TYPES": None,
    }
    with patch.dict(adapters._CAPABILITY, clear=True), patch.multiple(adapters, **fresh):
        yield


def _others() -> Iterator[str]:
    """By what they derive from; else by a state or a snapshot of their own."""
    cases: list[tuple[Any, str]] = [
        (_derived("KVCache")(), _WHOLE),
        *((_windowed(name, 6), _WINDOW) for name in ("max_size", "window_size", "chunk_size")),
        (_windowed("window_size", None), _WHOLE),
        (_derived("RotatingKVCache")(max_size=6), _WINDOW),
        (_derived("ArraysCache")(1), _WHOLE),
        (_derived("CacheList")(caches.KVCache()), _LIST),
        (_State(), _WHOLE),
        (_derived("_BaseCache", prefix_cache_snapshot=lambda _: ())(), _WHOLE),
        (_derived("_BaseCache")(), _NONE),
        (object(), _NONE),
        (_Floats(), _NONE),
    ]
    for one, kind in cases:
        if adapters.resolve_capability(one).value != kind:
            yield f"a {type(one).__name__} is {adapters.resolve_capability(one).value}"
        whole = kind != _NONE or isinstance(one, _Floats)
        if adapters.apc_exact_eligible(one) != whole:
            yield f"whether a {type(one).__name__} is kept whole"
        parts = (one,), caches.CacheList(caches.KVCache(), one)
        if [adapters.apc_exact_eligible(part) for part in parts] != [whole, whole]:
            yield f"whether lists of a {type(one).__name__} are kept whole"
    given = {caches.KVCache: adapters.Capability.CHECKPOINT}
    got = [
        adapters.resolve_capability(c, given).value
        for c in (caches.KVCache(), _derived("RotatingKVCache")(6))
    ]
    if got != [_WHOLE, _WINDOW]:
        yield f"kinds that are given are {got}"
    with _before_any():
        adapters.register_default_capabilities()
        adapters.register_capability(caches.KVCache, adapters.Capability.WINDOWED)
        if adapters.resolve_capability(caches.KVCache()).value != _WINDOW:
            yield "a class that is registered is of another kind"
    if (
        adapters.apc_block_eligible(_Floats()),
        adapters.apc_block_eligible(_derived("KVCache")()),
    ) != (1, 0):
        yield "blocks are kept of other classes than of those that give floats"


def _specs() -> Iterator[str]:
    """A cache's window, its parts, and whether it can be kept; alike ones have one key."""
    odd = _derived("KVCache", max_size="x", window_size=7)()
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (caches.KVCache(), (_PLAIN, True, None, True, True)),
        (caches.QuantizedKVCache(), (_PLAIN, True, None, True, True)),
        (caches.SimpleKVCache(), (_PLAIN, False, None, True, True)),
        (caches.RotatingKVCache(max_size=6), (_WINDOW, False, 6, False, True)),
        (_windowed("window_size", 5), (_WINDOW, False, 5, False, True)),
        (_windowed("chunk_size", 4), (_WINDOW, False, 4, False, True)),
        (odd, (_WINDOW, False, None, False, True)),
        (caches.ArraysCache(1), (_WHOLE, False, None, False, True)),
        ((caches.KVCache(),), (_LIST, False, None, True, True)),
        (caches.CacheList(caches.KVCache(), caches.KVCache()), (_LIST, False, None, True, True)),
        (caches.CacheList(caches.KVCache(), samples.state()), (_LIST, False, None, False, True)),
        ((caches.KVCache(), object()), (_NONE, False, None, False, False)),
        ((), (_NONE, False, None, False, False)),
        (((object(),), caches.KVCache()), (_NONE, False, None, False, False)),
        (object(), (_NONE, False, None, False, False)),
    ]
    for one, wanted in cases:
        spec = adapters.cache_spec(one)
        got = spec.capability.value, spec.block_eligible, spec.window_size
        if (*got, spec.pageable, spec.restorable) != wanted or spec.type_name != type(one).__name__:
            yield f"a {type(one).__name__} is {spec}"
        parts = one if isinstance(one, tuple) else getattr(one, "caches", ())
        if [child.type_name for child in spec.children] != [type(c).__name__ for c in parts]:
            yield f"the parts of a {type(one).__name__} are {spec.children}"
        key = (*got[:1], spec.type_name, *got[1:], tuple(c.group_key for c in spec.children))
        if spec.group_key != key or adapters.cache_spec(one).group_key != key:
            yield f"the key of a {type(one).__name__} is {spec.group_key}"
    given = {caches.KVCache: adapters.Capability.UNSUPPORTED}
    inner = adapters.cache_spec((caches.KVCache(),), given)
    if inner.capability.value != _NONE or inner.children[0].capability.value != _NONE:
        yield f"a kind that is given is not that of a part: {inner}"


def _plans() -> Iterator[str]:
    """Each layer by its place, alike ones together, and why one is not kept."""
    made = [caches.KVCache(), caches.ArraysCache(1), caches.KVCache(), object()]
    plan = adapters.build_prefix_cache_plan_from_caches(made)
    layers = [
        (c.index, c.type_name, c.capability.value, c.restorable, c.group_id, c.reason)
        for c in plan.components
    ]
    lacks = "no snapshot/restore contract"
    wanted = [
        (0, "KVCache", _PLAIN, True, 0, None),
        (1, "ArraysCache", _WHOLE, True, 1, None),
        (2, "KVCache", _PLAIN, True, 0, None),
        (3, "object", _NONE, False, 2, lacks),
    ]
    if layers != wanted or [k.value for k in plan.capabilities] != [one[2] for one in wanted]:
        yield f"layers are {layers}"
    groups = [(g.group_id, g.spec.type_name, g.layer_indices) for g in plan.groups]
    if groups != [(0, "KVCache", (0, 2)), (1, "ArraysCache", (1,)), (2, "object", (3,))]:
        yield f"groups are {groups}"
    if [spec.type_name for spec in plan.layer_specs] != [one[1] for one in wanted]:
        yield f"specs are {plan.layer_specs}"
    said = [
        "PrefixCachePlan: 4 components, groups=3, strategy=None, restorable=False",
        *(f"  [{n}] {name}: {kind} group={g}" for n, name, kind, _, g, _ in wanted[:3]),
        f"  [3] object: {_NONE} group=2  REJECTED ({lacks})",
    ]
    if plan.describe() != "\n".join(said):
        yield f"a plan is described as {plan.describe()}"
    two = [caches.KVCache(), caches.SimpleKVCache()]
    found = adapters.build_prefix_cache_plan_from_caches(two)
    got = found.strategy, found.legacy_mode, found.is_hybrid, len(found.groups)
    if got != ("checkpoint", "exact", True, 2):
        yield f"the plan of two kinds of keys and values is {got}"
    given = {caches.KVCache: adapters.Capability.UNSUPPORTED}
    layered, inner = SimpleNamespace(layers=[0, 0]), SimpleNamespace(make_cache=lambda: two)
    both = ["KVCache", "SimpleKVCache"]
    for model, names in (
        (layered, ["KVCache", "KVCache"]),
        (SimpleNamespace(language_model=layered), ["KVCache", "KVCache"]),
        (SimpleNamespace(language_model=layered, make_cache=lambda: two), both),
        (SimpleNamespace(language_model=inner, make_cache=lambda: [1]), both),
    ):
        for overrides in (None, given):
            built = adapters.build_prefix_cache_plan(model, overrides)
            kinds = [(c.type_name, c.restorable) for c in built.components]
            if kinds != [(n, n != "KVCache" or overrides is None) for n in names]:
                yield f"of a model's caches the plan is {kinds}"
