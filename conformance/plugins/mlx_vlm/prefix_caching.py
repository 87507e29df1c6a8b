"""The library's automatic prefix caching, set up like in its server."""

from __future__ import annotations

import inspect
from typing import Any

from conformance.core.engine_options import PrefixCaching
from conformance.core.errors import Unsupported
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.inputs import Inputs
from conformance.plugins.mlx_vlm.model import LoadedModel

_PLENTY = 1 << 40  # bytes
# Blocks in one file: fewer than a long prompt has.
_SHARD = 3


def make_manager(caching: PrefixCaching, folder: str | None = None) -> Any:
    """An ``APCManager`` with all its blocks free.

    Whether a prefix is stored must not depend on the memory of this machine, so no memory is
    reserved and the free memory is not measured, which would start a process each time.

    Source: ``mlx_vlm.server.app``, where a model is loaded.

    Args:
        folder: the folder for the files of kept prefixes, if the options ask for files.

    Raises:
        Unsupported: the options bound the bytes of all caches, or the library cannot keep what
            they ask for.
    """
    if caching.max_bytes is not None:
        raise Unsupported("mlx-vlm's prefix caching has no bound that the caches at work count to")
    settings = {
        "enabled": True,
        "disk_enabled": caching.disk,
        "disk_path": folder,
        "disk_max_gb": None,
        "disk_queue_max_gb": 1,
        "disk_shard_max_blocks": _SHARD,
        "num_blocks": caching.blocks,
        "block_size": caching.block_size,
        "checkpoint_entries": caching.snapshots,
        "checkpoint_interval_tokens": caching.interval,
        "checkpoint_guard_tokens": 1,
        "memory_max_gb": 0 if caching.times_first == 0 else 1,
        "memory_reserve_gb": 0,
    }
    make = compat.part("apc").from_env
    if "overrides" in inspect.signature(make).parameters:
        made = make(overrides=settings)
    elif not caching.disk:
        made = compat.part("apc").APCManager(caching.blocks, caching.block_size)
        made.exact_cache_guard_tokens = settings["checkpoint_guard_tokens"]
    else:
        raise Unsupported("this mlx-vlm takes where it keeps prefixes from the environment alone")
    made._memory_headroom = lambda: _PLENTY
    if max_bytes(made) is None:  # up to 0.7.0
        if caching.times_first is not None:
            raise Unsupported("this mlx-vlm's prefix caching does not bound its bytes")
        made._exact_cache_max = caching.snapshots  # settings have no such name there
    return made


def max_bytes(manager: Any) -> int | None:
    """The most bytes that the manager may keep; None up to 0.7.0, which has no such bound."""
    return getattr(manager, "memory_max_bytes", None)


def require(generator: Any) -> None:
    """Check that the generator uses its manager.

    Raises:
        Unsupported: the library has silently turned prefix caching off for this model's caches.
    """
    if generator.apc_manager is not None:
        return
    plan = compat.part("apc").model_apc_plan(generator.model)
    why = {f"{c.type_name}: {c.reason}" for c in plan.components if not c.restorable}
    reasons = "; ".join(sorted(why)) or "the model names no caches"
    raise Unsupported(f"prefix caching is not supported for this model's caches ({reasons})")


def require_stored(manager: Any, prompt_length: int) -> None:
    """Check that something is stored once a prompt of this length has its first token.

    Raises:
        Unsupported: the library silently stores nothing, for example for a layer without keys.
    """
    if manager.disk is not None:  # files are written later
        return
    shortest = getattr(manager, "exact_cache_min_tokens", 0)  # from 0.6.14
    least = max(manager.block_size, shortest) + 2
    if prompt_length >= least and not manager.stats.stores + manager.stats.exact_stores:
        raise Unsupported(
            f"prefix caching is not supported for this model's caches: nothing was stored of a "
            f"prompt of {prompt_length} tokens"
        )


def prepare(generator: Any, prompt_length: int) -> None:
    """Call the cache before a prompt is embedded, as the server does from 0.7.1 on."""
    call = getattr(getattr(generator, "apc", None), "prepare_prefill", None)
    if call is None:
        return
    size = "prefill_step_size"
    taken = inspect.signature(call).parameters
    call(prompt_length, **({size: getattr(generator, size)} if size in taken else {}))


def semantic_hash(loaded: LoadedModel, made: Inputs, tenant: str = "") -> int:
    """The hash of all content of a prompt except its tokens.

    Source: ``mlx_vlm.server.generation.ResponseGenerator.generate``.
    """
    apc = compat.part("apc")
    shown = made.pixel_values is not None
    return int(
        apc.semantic_extra_hash(
            tenant=tenant or None,
            image_hash=apc.hash_image_payload(pixel_values=made.pixel_values) if shown else 0,
            media={
                "audio": made.extra.get("input_features"),
                "video": made.extra.get("pixel_values_videos"),
            },
            model=loaded.language_model,
            processor=loaded.processor,
        )
    )


def used_bytes(manager: Any) -> int:
    """Bytes of the blocks that some request uses."""
    free, block = set(), manager._free_head
    while block is not None and id(block) not in free:
        free.add(id(block))
        block = block.next
    return sum(int(b.resident_bytes()) for b in manager.pool if id(b) not in free)
