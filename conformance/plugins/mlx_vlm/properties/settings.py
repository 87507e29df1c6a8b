"""Whether each setting of mlx-vlm takes effect: of prefix caching, of prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store.keys import environment

apc: Any = compat.part("apc")
ar: Any = compat.part("generate.ar")
common: Any = compat.part("generate.common")

_GB = 1 << 30


def setting_properties() -> list[Property]:
    """Those of ``from_env``, and of chunked prefill."""
    made = ("from_env*", "APCManager.__init__", "DiskBlockStore.__init__", "_setting", "_env_*")
    return [
        Property(
            "settings: of prefix caching", "mlx_vlm/apc.py", (*made, "default_disk*"), _caching
        ),
        Property("settings: on and off", "mlx_vlm/apc.py", made, _enabled),
        Property("settings: of prefill", "mlx_vlm/generate/common.py", _PREFILL, _prefill),
        Property(
            "settings: of pending state", "mlx_vlm/generate/ar.py", ("_get_batch_*",), _interval
        ),
    ]


_PREFILL = ("_chunked_prefill_enabled", "_policy_enabled", "_default_prefill_*")


def _budget(part: int, least: int, most: int) -> int:
    """By default a part of the memory that Metal recommends, where there is one."""
    known = apc._metal_working_set_bytes()
    return max(least, min(most, (known if known is not None else part) // 10))


Read = Callable[[Any], Any]


def _settings() -> list[tuple[str, str, Any, Read, list[tuple[Any, Any]]]]:
    """For each its name, its variable, the default, where it arrives, values with results."""
    gigabytes = [(2, 2 * _GB), ("0.5", _GB // 2), (0, 0), (-1, 0)]
    counts = [(3, 3), ("7", 7)]
    reserve = max(_GB, (apc._metal_working_set_bytes() or 0) // 10)
    return [
        ("block_size", "APC_BLOCK_SIZE", 16, lambda m: m.block_size, counts),
        ("num_blocks", "APC_NUM_BLOCKS", 2048, lambda m: (m.num_blocks, len(m.pool))[1], counts),
        (
            "checkpoint_entries",
            "APC_CHECKPOINT_ENTRIES",
            2,
            lambda m: m._exact_cache_max,
            [*counts, (0, 0), (-3, 0)],
        ),
        (
            "checkpoint_guard_tokens",
            "APC_CHECKPOINT_GUARD_TOKENS",
            1,
            lambda m: m.exact_cache_guard_tokens,
            [*counts, (0, 1)],
        ),
        (
            "checkpoint_interval_tokens",
            "APC_CHECKPOINT_INTERVAL_TOKENS",
            2048,
            lambda m: m.checkpoint_interval_tokens,
            [*counts, (0, 0), (-3, 0)],
        ),
        (
            "memory_max_gb",
            "APC_MEMORY_MAX_GB",
            _budget(10 * _GB, 0, 8 * _GB),
            lambda m: m.memory_max_bytes,
            gigabytes,
        ),
        (
            "memory_reserve_gb",
            "APC_MEMORY_RESERVE_GB",
            reserve,
            lambda m: m.memory_reserve_bytes,
            gigabytes,
        ),
        (
            "disk_queue_max_gb",
            "APC_DISK_QUEUE_MAX_GB",
            _GB,
            lambda m: m.disk.queue_max_bytes,
            gigabytes,
        ),
        (
            "disk_shard_max_blocks",
            "APC_DISK_SHARD_MAX_BLOCKS",
            256,
            lambda m: m.disk._shard_max_blocks,
            [*counts, (0, 1)],
        ),
        (
            "disk_max_gb",
            "APC_DISK_MAX_GB",
            20 * _GB,
            lambda m: m.disk.max_bytes,
            [(2, 2 * _GB), ("0.5", _GB // 2), (0, None), (-1, None), (1, _GB)],
        ),
    ]


_MORE = {
    "APC_DISK_MIN_FREE_RAM_GB": "0.5",
    "APC_DISK_WORKERS": "2",
    "APC_DISK_NAMESPACE": "x",
}


def _caching() -> Iterator[str]:
    """Each alone, from the environment, from the server, and as nothing, which is the default."""
    with TemporaryDirectory() as folder:
        base = {"enabled": True, "disk_path": folder}
        for name, variable, default, read, cases in _settings():
            asked: list[tuple[dict[str, str], dict[str, Any], Any]] = [
                ({}, {}, default),
                ({variable: "3"}, {name: None}, default),
            ]
            for value, wanted in cases:
                asked.append(({}, {name: value}, wanted))
                asked.append(({variable: str(value)}, {}, wanted))
                asked.append(({variable: "5"}, {name: value}, wanted))
            for variables, settings, wanted in asked:
                few = {} if name == "num_blocks" else {"num_blocks": 8}
                with environment(**variables):
                    manager = apc.from_env("n", {**base, **few, **settings})
                manager.close()
                got = read(manager)
                if got != wanted:
                    yield f"{name} with {settings} and {variables} is {got}, not {wanted}"
        older = {"APC_EXACT_CACHE_ENTRIES": "6", "APC_EXACT_PREFIX_GUARD_TOKENS": "4"}
        with environment(**older, APC_EXACT_MIN_TOKENS="9", APC_MAX_POOL_TENSORS="8", **_MORE):
            manager = apc.from_env(None, base)
        manager.close()
        found = (manager._exact_cache_max, manager.exact_cache_guard_tokens)
        more = (manager.exact_cache_min_tokens, manager._max_pool_tensors, manager.disk.dir.name)
        rest = manager._disk_min_free_ram_bytes, len(manager.disk._workers)
        if (*found, *more, *rest) != (6, 4, 9, 8, "x", _GB // 2, 2):
            yield f"settings of the environment arrive as {(*found, *more, *rest)}"
        with environment():
            manager = apc.from_env(None, base)
        manager.close()
        if manager.disk.dir.name != "default":
            yield f"files are in {manager.disk.dir.name} by default"
        rest = (manager.exact_cache_min_tokens, manager._max_pool_tensors)
        if (*rest, manager._layer_major_memory_min_tokens) != (16, 450000, 50000):
            yield f"defaults are {rest}, {manager._layer_major_memory_min_tokens}"
        if manager._disk_min_free_ram_bytes != 2 * _GB or len(manager.disk._workers) != 1:
            yield "the defaults of files are others"


def _enabled() -> Iterator[str]:
    for value, on in (("1", True), ("TRUE", True), ("yes", True), ("0", False), ("on", False)):
        with environment(APC_ENABLED=value, APC_DISK_ENABLED="0"):
            if (apc.from_env() is not None) != on:
                yield f"APC_ENABLED={value} is taken for another"
            if apc.from_env(None, {"enabled": not on}) is None and not on:
                yield "the server's setting is not used"
    with environment():
        if apc.from_env() is not None or apc.from_env(None, {"enabled": 0}) is not None:
            yield "prefix caching is on by default"
    with TemporaryDirectory() as folder, environment(MLX_VLM_CACHE_HOME=folder, APC_ENABLED="1"):
        if apc.default_disk_path() != Path(folder) / "apc":
            yield f"files are in {apc.default_disk_path()} by default"
        cases: list[tuple[dict[str, Any], Path | None]] = [
            ({}, Path(folder) / "apc" / "name"),
            ({"disk_path": f"{folder}/b"}, Path(folder) / "b" / "name"),
            ({"disk_path": ""}, None),
            ({"disk_enabled": False}, None),
            ({"disk_enabled": "no"}, None),
            ({"disk_enabled": "Yes"}, Path(folder) / "apc" / "name"),
        ]
        for settings, wanted in cases:
            manager = apc.from_env("name", settings)
            manager.close()
            got = manager.disk.dir if manager.disk is not None else None
            if got != wanted:
                yield f"with {settings} files are in {got}"
    with environment():
        if apc.default_disk_path() != Path.home() / ".cache" / "mlx-vlm" / "apc":
            yield f"files are in {apc.default_disk_path()}"


def _prefill() -> Iterator[str]:
    """A model's own policy first, its own word next, and none with an unknown drafter."""
    on = common._chunked_prefill_enabled
    plain, never = SimpleNamespace(), SimpleNamespace(no_chunked_prefill=True)
    inner = SimpleNamespace(language_model=never)
    asked: dict[str, Any] = {}

    def policy(**given: Any) -> Any:
        asked.update(given)
        return SimpleNamespace(enabled=given["draft_kind"] == "yes")

    own = SimpleNamespace(chunked_prefill_policy=policy, no_chunked_prefill=True)
    within = SimpleNamespace(language_model=own)
    cases = [
        (on(plain), True),
        (on(plain, draft_model=object()), False),
        (on(never), False),
        (on(inner), False),
        (on(own, draft_kind="yes", draft_model=object()), True),
        (on(within, draft_kind="yes"), True),
        (on(within, draft_kind="no"), False),
        (on(SimpleNamespace(chunked_prefill_policy=lambda **_: True)), True),
        (on(SimpleNamespace(chunked_prefill_policy=lambda **_: False)), False),
    ]
    if any(got is not wanted for got, wanted in cases):
        yield f"prefill is chunked: {cases}"
    given = {
        "input_ids": 1,
        "inputs_embeds": 2,
        "prompt_cache": 3,
        "draft_model": 4,
        "draft_kind": "5",
    }
    on(own, prefill_kwargs={"a": 6}, **given)
    if asked != {**given, "prefill_kwargs": {"a": 6}}:
        yield f"a model's policy is asked with {asked}"
    on(own)
    if asked["prefill_kwargs"] != {}:
        yield "a model's policy is given no dictionary"
    step = common._default_prefill_step_size_for_offload
    offloaded = SimpleNamespace(moe_offload_store=object())
    common.logger.disabled = True
    sizes = [
        step(offloaded, None, None, 9),
        step(offloaded, 4, None, 9),
        step(plain, None, None, 9),
    ]
    sizes.append(step(offloaded, None, object(), 9))
    common.logger.disabled = False
    if sizes != [9, 4, None, None]:
        yield f"sizes of pieces are {sizes}"


def _interval() -> Iterator[str]:
    name = "MLX_VLM_BATCH_CACHE_EVAL_INTERVAL"
    ar.logger.disabled = True
    for given, wanted in (("7", 7), ("0", 0), ("-3", 0), ("x", ar.DEFAULT_CACHE_EVAL_INTERVAL)):
        with environment(**{name: given}):
            if ar._get_batch_cache_eval_interval() != wanted:
                yield f"{name}={given} is {ar._get_batch_cache_eval_interval()}"
    ar.logger.disabled = False
    with environment():
        if ar._get_batch_cache_eval_interval() != ar.DEFAULT_CACHE_EVAL_INTERVAL:
            yield "pending arrays are computed in other steps by default"
