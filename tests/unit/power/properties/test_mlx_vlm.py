"""Properties of mlx-vlm's functions: they hold, and each detects a function that is broken."""

import functools

import pytest
from mlx_vlm.models import cache, gated_delta, rope_utils, sparse_attention, ssm
from mlx_vlm.vision_cache import VisionFeatureCache

from conformance.backend.uncompiled import uncompiled
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.power.properties import load_function_defects
from conformance.power.properties.mlx_vlm import properties

# Of both libraries: tests/unit/backend/ has these.
SHARED = ("attention", "masks", "processors", "rotations", "samplers", "scans")
ALL = {one.name: one for one in properties() if not one.name.startswith(SHARED)}


@pytest.fixture(autouse=True)
def without_compiling():
    with uncompiled():
        yield


KNOWN = {entry.property: entry for entry in load_function_defects()}


def test_each_holds_but_for_what_is_known():
    wrong = {name: said for name, one in ALL.items() if (said := one.problem())}
    assert set(wrong) == set(ALL) & set(KNOWN)


def after(right, change):
    """The function, of whose result something is changed."""

    @functools.wraps(right)
    def call(*args, **kwargs):
        return change(right(*args, **kwargs))

    return call


def never(*args, **kwargs):
    """Gives nothing, whatever it is asked."""


apc, ar = part("apc"), part("generate.ar")
ARRAYS, POOLING, BATCH_POOLING = cache.ArraysCache, cache.PoolingCache, cache.BatchPoolingCache
BUFFERED = cache.BufferedRotatingKVCache
# For each property what is broken, and how.
BROKEN = {
    "caches: what all have": (
        ARRAYS,
        "prefix_cache_snapshot",
        lambda kept: kept | {"lengths": None},
    ),
    "caches: blocks of recurrent layers": (ARRAYS, "_restore_speculative_metadata", None),
    "caches: blocks given up": (ARRAYS, "abort_speculation", None),
    "caches: blocks that are refused": (ARRAYS, "_recorded_length", lambda length: 0),
    "caches: windows of rows": (ARRAYS, "update_window", lambda window: window[::-1]),
    "caches: streams as they are kept": (cache.QuantizedKVCache, "prefix_cache_merge", None),
    "caches: streams quantized and taken apart": (
        cache.KVCache,
        "to_quantized",
        lambda packed: cache.QuantizedKVCache(bits=packed.bits),
    ),
    "caches: chunks": (cache.ChunkedKVCache, "maybe_trim_front", None),
    "caches: blocks of pooled windows": (
        cache,
        "_select_pooling_remainder",
        lambda rest: rest[:, ::-1],
    ),
    "caches: blocks of pooled rows": (
        BATCH_POOLING,
        "_speculative_valid_lengths",
        lambda both: ([0] * len(both[0]), both[1]),
    ),
    "caches: pooled blocks given up": (POOLING, "abort_speculation", None),
    "caches: pooled blocks that are refused": (cache, "_record_pooling_speculative_inputs", None),
    "caches: streams in any order": (cache.ChunkedKVCache, "trim", lambda count: count + 1),
    "caches: room of streams": (cache.KVCache, "prefix_cache_reserve", None),
    "caches: windows that become buffered": (BUFFERED, "_capacity_for", lambda room: room + 1),
    "delta: a cache's states": (gated_delta, "gated_delta_update", None),
    "delta: by Metal": (gated_delta, "compute_g", lambda gates: gates * 0.9),
    "delta: state space by Metal": (ssm, "ssm_update", None),
    "keys: features of pictures": (VisionFeatureCache, "_make_key", lambda key: key[:5]),
    "keys: files of kept prefixes": (apc, "apc_disk_namespace", lambda name: name[:2]),
    "keys: random numbers": (ar, "_position_seed", lambda seed: seed & 0xFFFF),
    "keys: prefixes behind all media": (apc, "media_safe_prefix_min", lambda end: end // 2),
    "mrope: angles": (rope_utils, "compute_mrope_frequencies", lambda angles: angles * 1.001),
    "mrope: eager": (rope_utils, "_eager_rope_angles", lambda angles: angles * 1.001),
    "mrope: heads": (rope_utils, "mrope_position_selector", lambda axes: axes[::-1]),
    "mrope: sections in any order": (
        rope_utils,
        "mrope_section_selectors",
        lambda both: (both[1], both[0]),
    ),
    "mrope: settings": (rope_utils, "get_mrope_section", lambda sections: sections[:2]),
    "sparse attention: by Metal": (
        sparse_attention,
        "_indexed_sparse_attention_scalars",
        lambda three: three[::-1],
    ),
    "sparse attention: where there is no kernel": (
        sparse_attention,
        "indexed_sparse_attention",
        lambda found: 0,
    ),
}


FAULTS = [(name, *fault) for name, fault in BROKEN.items()]
IDS = [f"{name}, {attribute}" for name, _, attribute, _ in FAULTS]


@pytest.mark.parametrize(("name", "owner", "attribute", "change"), FAULTS, ids=IDS)
def test_a_broken_function_is_detected(monkeypatch, name, owner, attribute, change):
    right = getattr(owner, attribute)
    broken = never if change is None else after(right, change)
    held = vars(owner).get(attribute) if isinstance(owner, type) else None
    kind = type(held) if isinstance(held, staticmethod | classmethod) else None
    monkeypatch.setattr(owner, attribute, staticmethod(broken) if kind else broken)
    assert ALL[name].problem() != ""


def test_each_is_broken_once_or_known_to_be():
    assert set(ALL) - set(BROKEN) - set(KNOWN) == set()
