"""Properties of TurboQuant and of what models ask of caches: each detects what is broken."""

import functools

import numpy as np
import pytest
from mlx_vlm import turboquant
from mlx_vlm.models import base
from mlx_vlm.turboquant import BatchTurboQuantKVCache, HybridQuantKVCache, TurboQuantKVCache

from conformance.backend.uncompiled import uncompiled
from conformance.plugins.mlx_vlm.properties import properties
from conformance.plugins.mlx_vlm.properties.codec_numbers import Codec, codebook, packed
from conformance.tools.functions.function_defects import load_function_defects

KINDS = ("codecs", "models", "states", "turbo")
ALL = {one.name: one for one in properties() if one.name.startswith(KINDS)}
KNOWN = {entry.property: entry for entry in load_function_defects()}


@pytest.fixture(autouse=True)
def without_compiling():
    with uncompiled():
        yield


@pytest.mark.parametrize("name", ALL)
def test_it_holds_but_for_what_is_known(name):
    problem = ALL[name].problem()
    assert KNOWN[name].explains("mlx_vlm", name, problem) if name in KNOWN else problem == ""


# For each property what is broken, and what is made of what it gives.
BROKEN = {
    "codecs: kept": (turboquant, "_codecs_compatible", lambda alike: True),
    "codecs: packed numbers": (turboquant, "_pack_lowbit", lambda words: words << 1),
    "codecs: rotations and levels": (turboquant, "_codebook", lambda book: book * 1.001),
    "codecs: of half bits": (turboquant, "_select_outlier_indices", lambda both: both[::-1]),
    "codecs: of whole bits": (turboquant, "_rht_forward", lambda turned: turned[..., ::-1]),
    "models: attention in pieces": (base, "ensure_fused_sdpa", lambda out: out * 1.001),
    "models: shapes and names": (base, "align_attention_mask_to_scores", lambda mask: None),
    "models: what is asked of a cache": (base, "cache_position_offset", lambda n: n + 1),
    "states: cut and joined": (turboquant, "_concat_state", lambda state: None),
    "states: grown in place": (turboquant, "_reserve_state_capacity", lambda state: None),
    "states: seen as arrays": (
        turboquant._QuantizedStateProxy,
        "__getitem__",
        lambda part: part._state,
    ),
    "turbo: a few keys at once": (
        turboquant._TurboQuantMSECodec,
        "weighted_sum_stats_from_scores",
        lambda found: (found[0], found[1], found[2] * 2),
    ),
    "turbo: a single stream": (TurboQuantKVCache, "make_mask", lambda mask: ~mask),
    "turbo: batches joined": (turboquant, "_pad_state_tokens", lambda state: None),
    "turbo: its own attention": (TurboQuantKVCache, "decode_attention", lambda out: out * 1.001),
    "turbo: rows of a batch": (BatchTurboQuantKVCache, "make_mask", lambda mask: ~mask),
    "turbo: rows put together": (turboquant, "_codecs_compatible", lambda alike: True),
    "turbo: two schemes": (HybridQuantKVCache, "trim", lambda n: n + 1),
    "turbo: what is kept": (turboquant, "_snapshot_kv_codec", lambda codec: None),
    "turbo: which attention is taken": (
        base,
        "_turboquant_attention_applies",
        lambda applies: True,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_function_is_detected(monkeypatch, name):
    owner, attribute, change = BROKEN[name]
    right = getattr(owner, attribute)

    @functools.wraps(right)
    def broken(*args, **kwargs):
        return change(right(*args, **kwargs))

    monkeypatch.setattr(owner, attribute, broken)
    assert ALL[name].problem() != ""


def test_each_is_broken_once_or_known_to_be():
    assert set(ALL) - set(KNOWN) == set(BROKEN)


def test_levels_of_one_bit_are_the_means_of_both_halves():
    # Of a coordinate of a random direction in three dimensions, which is anywhere alike.
    assert codebook(3, 1).tolist() == pytest.approx([-0.5, 0.5], abs=1e-4)


def test_numbers_are_packed_over_the_ends_of_words():
    numbers = np.array([1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 7])
    assert packed(numbers, 3).tolist() == [0o72107654321 & 0xFFFFFFFF, 1]


def test_vectors_keep_their_length_and_direction():
    vectors = np.random.default_rng(1).normal(0, 1, (5, 48))
    away = np.linalg.norm(Codec(48, 4, 0).decoded(vectors) - vectors, axis=-1)
    assert (away / np.linalg.norm(vectors, axis=-1)).max() < 0.15
