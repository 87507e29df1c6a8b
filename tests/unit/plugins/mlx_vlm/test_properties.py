"""Properties of mlx-vlm's functions: they hold, and each detects a function that is broken."""

import functools

import mlx.core as mx
import pytest
from mlx_vlm import (
    apc,
    apc_adapters,
    apc_coordinator,
    apc_storage,
    kv_quant,
    sample_utils,
    turboquant,
)
from mlx_vlm.generate import ar, common
from mlx_vlm.models import base as models_base
from mlx_vlm.models import cache, gated_delta, rope_utils, sparse_attention, ssm

from conformance.backend.uncompiled import uncompiled
from conformance.plugins.mlx_vlm.properties import properties
from conformance.tools.functions.function_defects import load_function_defects

# Of both libraries: tests/unit/backend/ has these.
SHARED = ("attention", "masks", "processors", "rotations", "samplers", "scans")
# properties/test_caches.py has these.
ELSEWHERE = (*SHARED, "caches")
ALL = {one.name: one for one in properties() if not one.name.startswith(ELSEWHERE)}


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
# For each property what is broken, and how.
BROKEN = {
    "adapters: contracts": (apc_adapters.CheckpointAdapter, "capture", lambda fragment: None),
    "adapters: copies": (apc_adapters, "_copy_array", lambda array: array + 1),
    "adapters: kinds": (apc_adapters, "apc_block_eligible", lambda able: True),
    "adapters: kinds of other classes": (apc_adapters, "_custom_state_contract", lambda own: True),
    "adapters: plans": (apc_adapters.PrefixCachePlan, "describe", lambda text: text + "."),
    "adapters: room": (apc_adapters, "reserve_checkpoint_capacity", None),
    "adapters: rows of batches": (apc_adapters, "clone_cache_entry", lambda copy: None),
    "adapters: rows put together": (apc_adapters, "merge_cache_entries", lambda batch: None),
    "adapters: rows taken out": (apc, "_prompt_cache_is_batch_shaped", lambda shaped: True),
    "adapters: rows that do not fit": (apc_adapters, "merge_cache_entries", lambda batch: 3),
    "adapters: specs": (apc_adapters, "apc_block_eligible", lambda able: True),
    "adapters: what has no copy": (apc_adapters, "clone_cache_entry", lambda copy: 3),
    "batches: answers": (ar, "_split_prompt_kwargs_per_row", lambda rows: rows[::-1]),
    "batches: sizes of images": (ar, "normalize_resize_shape", lambda sides: sides and (3, 3)),
    "batches: what is asked": (ar, "normalize_resize_shape", lambda sides: (3, 3)),
    "batches: single files": (ar, "_generate_batch", None),
    "batches: arguments of a generator": (
        ar,
        "_default_prefill_step_size_for_offload",
        lambda size: size and size + 1,
    ),
    "budgets: footprints": (cache.CacheMemory, "footprint", lambda n: n + 1),
    "budgets: of caches": (cache, "cache_nbytes", lambda n: n + 4),
    "budgets: of prefill": (apc_coordinator.PrefillMemoryPlan, "reserve_bytes", lambda n: 2 * n),
    "codecs: kept": (turboquant, "_codecs_compatible", lambda alike: True),
    "codecs: packed numbers": (turboquant, "_pack_lowbit", lambda words: words << 1),
    "codecs: rotations and levels": (turboquant, "_codebook", lambda book: book * 1.001),
    "codecs: of half bits": (turboquant, "_select_outlier_indices", lambda both: both[::-1]),
    "codecs: of whole bits": (turboquant, "_rht_forward", lambda turned: turned[..., ::-1]),
    "choices: at a boundary": (sample_utils, "apply_top_p", mx.zeros_like),
    "choices: of large logits": (sample_utils, "apply_top_p", mx.zeros_like),
    "choices: of each row": (sample_utils, "make_sampler", None),
    "delta: a cache's states": (gated_delta, "gated_delta_update", None),
    "delta: by Metal": (gated_delta, "compute_g", lambda gates: gates * 0.9),
    "delta: state space by Metal": (ssm, "ssm_update", None),
    "draws: keys": (ar, "_position_seed", lambda n: n >> 20),
    "draws: targets": (ar._PositionedTargetSampler, "_apply_top_k", lambda x: x + mx.arange(17)),
    "files: blocks": (apc.DiskBlockStore, "prefix_cache_bytes", lambda n: 0),
    "files: snapshots": (apc.DiskBlockStore, "find_exact_prefix", lambda found: None),
    "files: given up": (apc.DiskBlockStore, "_drop_index_for_path", None),
    "files: room": (apc.DiskBlockStore, "_maybe_evict", None),
    "files: damaged": (apc.DiskBlockStore, "_cleanup_partials", None),
    "files: in pieces": (apc.DiskBlockStore, "_pad_layer_major_arrays", lambda both: both[::-1]),
    "files: queue": (apc.DiskBlockStore, "_notify_write_callback", None),
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
    "coordinators: what is asked": (apc_coordinator.APCCoordinator, "release_hit", None),
    "formats: arrays": (apc, "_safetensors_tensor_bounds", lambda bounds: None),
    "formats: folders": (apc, "apc_disk_namespace", lambda name: name[:-1]),
    "formats: trees": (apc, "_decode_checkpoint_tree", lambda tree: None),
    "memory: arrays of a pool": (apc.APCManager, "_make_tensor_room", lambda room: True),
    "memory: bounds of what is looked for": (
        apc.APCManager,
        "lookup_prefix_disk_cache",
        lambda found: (None, 0),
    ),
    "memory: files where little is free": (apc.DiskBlockStore, "load_layer_major_prefix", None),
    "memory: snapshots of files": (apc.DiskBlockStore, "load_exact_cache", lambda found: None),
    "memory: snapshots that are refused": (apc.APCManager, "store_exact_cache", lambda done: True),
    "memory: what is free": (apc.APCManager, "_memory_headroom", lambda n: n + 1),
    "memory: what is given up": (apc.APCManager, "_make_room", lambda done: True),
    "keys: of prompts": (apc, "_sequence_hash", lambda n: n >> 60),
    "keys: of content": (apc, "_tensor_content_hash", lambda n: n >> 60),
    "keys: of requests": (apc, "tenant_scoped_hash", lambda n: n >> 60),
    "keys: of a generator": (ar.BatchGenerator, "_apc_extra_hash", lambda n: n + 1),
    "lookups: which is taken": (apc, "apc_lookup_plan", lambda plan: None),
    "lookups: rows that are kept": (apc, "layer_kv_for_apc", lambda both: both[::-1]),
    "lookups: long prompts": (apc, "_clone_layer_major_kv_cache_for_apc", lambda caches: None),
    "pool: counts": (apc.APCStats, "record_reject", None),
    "media: where prompts are cut": (apc, "media_safe_prefix_min", lambda n: n + 1),
    "media: tokens of a config": (apc, "multimodal_token_ids_from_config", lambda ids: ids | {1}),
    "models: attention in pieces": (models_base, "ensure_fused_sdpa", lambda out: out * 1.001),
    "models: shapes and names": (models_base, "align_attention_mask_to_scores", lambda mask: None),
    "models: what is asked of a cache": (models_base, "cache_position_offset", lambda n: n + 1),
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
    "plans: of caches": (apc_adapters, "apc_block_eligible", lambda able: True),
    "plans: of checkpoints": (apc_coordinator.APCCoordinator, "checkpoint_len", lambda n: n - 1),
    "pool: behind_files": (apc.APCManager, "lookup_prefix_disk_cache", lambda found: (None, 0)),
    "pool: by_bytes": (apc.APCManager, "_make_room", lambda done: True),
    "pool: by_number": (apc.APCManager, "_free_push", None),
    "pool: few_snapshots": (apc.APCManager, "lookup_exact_cache", lambda found: (None, 0)),
    "pool: files_alone": (apc.DiskBlockStore, "has", lambda found: False),
    "prefixes: shared": (apc, "_checkpoint_match_len", lambda n: n + 1),
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
    "store: batches of blocks": (apc, "_fill_batch_layer_cache", lambda _: cache.BatchKVCache([0])),
    "store: batches of snapshots": (
        apc,
        "_empty_quant_batch_cache",
        lambda _: cache.BatchKVCache([0]),
    ),
    "store: batches that are refused": (apc, "_reject_mixed_batch_policy", None),
    "store: blocks of one token": (apc.APCManager, "lookup_prefix", lambda found: ([], 0)),
    "store: blocks read in two ways": (
        apc.DiskBlockStore,
        "_load_layer_major_segment",
        lambda read: read and (read[1], read[0], read[2]),
    ),
    "store: classes of somebody else": (apc, "_decode_checkpoint_tree", lambda tree: None),
    "store: files of blocks that lack a part": (
        apc.DiskBlockStore,
        "_load_layer_major_segment",
        lambda read: read or 3,
    ),
    "store: room behind blocks": (
        apc.DiskBlockStore,
        "load_layer_major_prefix",
        lambda read: [[a[..., :3, :] for a in kind] for kind in read[:2]],
    ),
    "store: bounds of the environment": (apc.APCManager, "__init__", None),
    "store: bytes of arrays": (apc_storage, "_array_bytes", lambda size: size + 1),
    "store: few bytes": (apc.APCManager, "_evict_lru", None),
    "store: files of snapshots": (apc.DiskBlockStore, "exact_cache_bytes", lambda size: size - 1),
    "store: files of what memory has no room for": (apc.DiskBlockStore, "has", lambda found: True),
    "store: long prompts": (apc, "_clone_layer_major_kv_cache_for_apc", lambda caches: None),
    "store: memory of a device": (apc, "_setting", lambda given: 3),
    "store: streams of layers": (apc, "_fill_stream_layer_cache", lambda _: cache.KVCache()),
    "store: what is left out": (apc, "apc_lookup_plan", lambda plan: None),
    "store: files known again": (apc, "_read_safetensors_metadata", lambda words: {}),
    "store: headers": (apc, "_read_safetensors_header", lambda header: (*header,)),
    "store: names of files": (apc.DiskBlockStore, "_is_canonical_shard", lambda found: True),
    "store: the queue of writes": (apc, "_cache_nbytes", lambda size: size + 1),
    "store: waiting for a write": (apc.DiskBlockStore, "exact_cache_bytes", lambda size: size + 1),
    "store: what cannot be given up": (apc.DiskBlockStore, "_maybe_evict", lambda _: 3),
    "store: what is being written": (apc.DiskBlockStore, "_maybe_evict", None),
    "store: what is written once": (apc.DiskBlockStore, "has", lambda found: not found),
    "store: words about a block": (
        apc.DiskBlockStore,
        "_decode_block_metadata",
        lambda words: {**words, "extra_hash": "9"},
    ),
    "store: each class": (apc, "_encode_checkpoint_tree", lambda tree: None),
    "store: entries that lack a part": (
        apc,
        "_read_safetensors_tensor",
        lambda array: mx.zeros(3) if array is None else array,
    ),
    "store: files that lack a part": (apc, "_restore_empty_tensor_entries", lambda _: {}),
    "store: room for a prompt": (apc, "_pad_kv_for_capacity", lambda both: both[::-1]),
    "store: what is no entry": (
        apc,
        "_resolve_checkpoint_class",
        lambda cls: cls or cache.KVCache,
    ),
    "settings: of bits": (turboquant, "resolve_kv_bits", lambda bits: bits[::-1]),
    "settings: of pending state": (ar, "_get_batch_cache_eval_interval", lambda n: n + 1),
    "settings: of prefill": (common, "_policy_enabled", lambda on: True),
    "settings: of prefix caching": (apc, "_setting", lambda given: 3),
    "settings: of quantization": (kv_quant, "_is_default_split", lambda default: not default),
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
    "settings: on and off": (apc, "default_disk_path", lambda path: path / "other"),
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
    "turbo: a single stream": (turboquant.TurboQuantKVCache, "make_mask", lambda mask: ~mask),
    "turbo: batches joined": (turboquant, "_pad_state_tokens", lambda state: None),
    "turbo: its own attention": (
        turboquant.TurboQuantKVCache,
        "decode_attention",
        lambda out: out * 1.001,
    ),
    "turbo: rows of a batch": (turboquant.BatchTurboQuantKVCache, "make_mask", lambda mask: ~mask),
    "turbo: rows put together": (turboquant, "_codecs_compatible", lambda alike: True),
    "turbo: two schemes": (turboquant.HybridQuantKVCache, "trim", lambda n: n + 1),
    "turbo: what is kept": (turboquant, "_snapshot_kv_codec", lambda codec: None),
    "turbo: which attention is taken": (
        models_base,
        "_turboquant_attention_applies",
        lambda applies: True,
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
