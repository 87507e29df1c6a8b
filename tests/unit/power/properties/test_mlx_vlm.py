"""Properties of mlx-vlm's functions: they hold, and each detects a function that is broken."""

import functools

import mlx.core as mx
import pytest
from mlx_vlm import sample_utils
from mlx_vlm.generate import ar
from mlx_vlm.models import cache, gated_delta, rope_utils, sparse_attention, ssm

from conformance.backend.uncompiled import uncompiled
from conformance.power.properties.function_defects import load_function_defects
from conformance.power.properties.mlx_vlm import properties

# Of both libraries: tests/unit/backend/ has these.
SHARED = ("attention", "masks", "processors", "rotations", "samplers", "scans")
ALL = {one.name: one for one in properties() if not one.name.startswith(SHARED)}


@pytest.fixture(autouse=True)
def without_compiling():
    with uncompiled():
        yield


KNOWN = {entry.property: entry for entry in load_function_defects()}


@pytest.mark.parametrize("name", ALL)
def test_it_holds_but_for_what_is_known(name):
    problem = ALL[name].problem()
    assert KNOWN[name].explains("mlx_vlm", name, problem) if name in KNOWN else problem == ""


def after(right, change):
    """The function, of whose result something is changed."""

    @functools.wraps(right)
    def call(*args, **kwargs):
        return change(right(*args, **kwargs))

    return call


def never(*args, **kwargs):
    """Gives nothing, whatever it is asked."""


PROMPTS, GENERATOR = ar.PromptProcessingBatch, ar.BatchGenerator
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
    "caches: prefixes that are read only": (
        cache.StaticPrefixKVCache,
        "_capacity_for",
        lambda room: room + 1,
    ),
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
    "batches: answers": (ar, "_split_prompt_kwargs_per_row", lambda rows: rows[::-1]),
    "batches: sizes of images": (ar, "normalize_resize_shape", lambda sides: sides and (3, 3)),
    "batches: what is asked": (ar, "normalize_resize_shape", lambda sides: (3, 3)),
    "batches: single files": (ar, "_generate_batch", None),
    "batches: arguments of a generator": (
        ar,
        "_default_prefill_step_size_for_offload",
        lambda size: size and size + 1,
    ),
    "choices: at a boundary": (sample_utils, "apply_top_p", mx.zeros_like),
    "choices: of large logits": (sample_utils, "apply_top_p", mx.zeros_like),
    "choices: of each row": (sample_utils, "make_sampler", None),
    "delta: a cache's states": (gated_delta, "gated_delta_update", None),
    "delta: by Metal": (gated_delta, "compute_g", lambda gates: gates * 0.9),
    "delta: state space by Metal": (ssm, "ssm_update", None),
    "draws: keys": (ar, "_position_seed", lambda n: n >> 20),
    "draws: targets": (ar._PositionedTargetSampler, "_apply_top_k", lambda x: x + mx.arange(17)),
    "generator: defaults": (ar.BatchGenerator, "insert", lambda numbers: numbers[::-1]),
    "generator: caches that are not padded": (
        ar.PromptProcessingBatch,
        "_release_apc_meta_blocks",
        None,
    ),
    "generator: fused decoding": (ar.GenerationBatch, "_fused_greedy_step", None),
    "generator: fused decoding of all rows": (ar.GenerationBatch, "_fused_greedy_step", None),
    "generator: kept blocks": (ar.BatchGenerator, "_apc_pick_for", lambda pick: None),
    "generator: kept caches": (
        ar.PromptProcessingBatch,
        "_row_real_tokens_processed",
        lambda count: count - 1,
    ),
    "generator: prompts in pieces": (
        ar.PromptProcessingBatch,
        "_next_apc_checkpoint_column",
        lambda column: column and column + 1,
    ),
    "generator: prompts that are not kept": (ar, "_right_pad_prompts", lambda ids: ids + 1),
    "generator: prompts of drafts": (ar, "_chunked_prefill_enabled", lambda on: False),
    "generator: prompts beside drafts": (GENERATOR, "_extend_generation_batch", None),
    "generator: prompts without embeddings": (
        ar,
        "_merge_prefill_prompt_kwargs",
        None,
    ),
    "generator: quantized caches": (ar, "kv_quant_from_legacy", lambda policy: None),
    "generator: rounds of drafts": (ar.SpeculativeGenerationBatch, "_finish_reason", None),
    "generator: rows and steps": (ar, "_sample_with_positions", lambda tokens: tokens[::-1]),
    "generator: rows that come and leave": (ar.GenerationBatch, "_ensure_token_context", None),
    "generator: rows removed": (ar.PromptProcessingBatch, "remove", None),
    "generator: what is asked of prompts": (ar.BatchGenerator, "_record_prompt_batch_time", None),
    "generator: what prompts are made with": (ar, "_concat_prompt_kwarg_rows", lambda a: a + 1),
    "generator: where prefixes are looked for": (
        ar.BatchGenerator,
        "_apc_safe_prefix_lookup_min",
        lambda n: n + 1,
    ),
    "mrope: angles": (rope_utils, "compute_mrope_frequencies", lambda angles: angles * 1.001),
    "mrope: eager": (rope_utils, "_eager_rope_angles", lambda angles: angles * 1.001),
    "mrope: heads": (rope_utils, "mrope_position_selector", lambda axes: axes[::-1]),
    "mrope: sections in any order": (
        rope_utils,
        "mrope_section_selectors",
        lambda both: (both[1], both[0]),
    ),
    "mrope: settings": (rope_utils, "get_mrope_section", lambda sections: sections[:2]),
    "penalties: of tokens": (sample_utils, "make_frequency_penalty", None),
    "penalties: together": (sample_utils, "make_logits_processors", lambda made: made[::-1]),
    "rows: apart": (ar, "_prompt_kwarg_row", lambda array: array + 1),
    "rows: caches": (ar, "_make_cache", lambda caches: caches[::-1]),
    "rows: caches joined": (ar, "_is_batch_cache_entry", lambda found: True),
    "rows: put together": (ar, "_pad_sequence_aligned_prompt_kwarg", lambda a: a + 1),
    "rows: quantized caches": (ar, "kv_quant_from_legacy", lambda policy: None),
    "rows: rope deltas": (
        ar.PromptProcessingBatch,
        "_normalize_rope_deltas",
        lambda deltas: deltas + 1,
    ),
    "rows: unpadded": (ar, "_slice_sequence_aligned_prompt_kwarg", lambda a: a[..., :1]),
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


def one_group(both):
    """Images of all shapes in one group."""
    return tuple({(4, 6): [one for some in of.values() for one in some]} for of in both)


# Other faults of the parts of a generator: each property sees more than one.
ALSO_BROKEN = [
    ("batches: answers", ar, "group_images_by_shape", one_group),
    ("generator: prompts in pieces", PROMPTS, "_store_apc_exact_checkpoints", None),
    ("generator: prompts in pieces", PROMPTS, "_apc_pending_checkpoint", lambda n: n + 1),
    ("generator: prompts in pieces", PROMPTS, "_prompt_kwargs_for_step", lambda given: {}),
    ("generator: prompts in pieces", PROMPTS, "_normalize_rope_deltas", lambda deltas: deltas + 1),
    ("generator: prompts in pieces", PROMPTS, "prompt_progress", lambda rows: rows[:0]),
    ("generator: prompts in pieces", PROMPTS, "remove", None),
    ("generator: prompts in pieces", ar, "_sample_with_positions", lambda tokens: tokens + 1),
    ("generator: rows that come and leave", ar.GenerationBatch, "filter", None),
    ("generator: rows that come and leave", ar, "_extend_cache", lambda caches: caches[:0]),
    ("generator: prompts of drafts", ar, "_left_pad_prompts", lambda ids: ids + 1),
    ("generator: what is asked of prompts", GENERATOR, "_prompt_batch_progress", lambda rows: []),
    ("generator: what is asked of prompts", GENERATOR, "stats", lambda stats: ar.BatchStats()),
    ("generator: what prompts are made with", GENERATOR, "_apc_extra_hash", lambda key: key + 1),
    ("generator: what prompts are made with", GENERATOR, "_apc_exact_checkpoint_len", None),
    ("generator: what prompts are made with", GENERATOR, "_build_apc_meta_for_cold", None),
    ("generator: where prefixes are looked for", GENERATOR, "_apc_suffix_is_text_only", None),
]
FAULTS = [*((name, *fault) for name, fault in BROKEN.items()), *ALSO_BROKEN]
IDS = [f"{name}, {attribute}" for name, _, attribute, _ in FAULTS]


@pytest.mark.parametrize(("name", "owner", "attribute", "change"), FAULTS, ids=IDS)
def test_a_broken_function_is_detected(monkeypatch, name, owner, attribute, change):
    right = getattr(owner, attribute)
    broken = never if change is None else after(right, change)
    held = vars(owner).get(attribute) if isinstance(owner, type) else None
    kind = type(held) if isinstance(held, staticmethod | classmethod) else None
    monkeypatch.setattr(owner, attribute, staticmethod(broken) if kind else broken)
    assert ALL[name].problem() != ""


def test_a_sampler_without_positions_is_detected(monkeypatch):
    monkeypatch.setattr(ar, "_sample_with_positions", lambda sampler, x, **_: sampler(x))
    assert "samplers are asked" in ALL["draws: positions"].problem()


def test_each_is_broken_once_or_known_to_be():
    assert set(ALL) - set(BROKEN) - set(KNOWN) == {"draws: positions"}
