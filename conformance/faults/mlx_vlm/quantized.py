"""Faults of quantized keys and values: which layers, which rows' parts, how often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.faults.base import Hits, replaced
from conformance.faults.mlx_vlm.patching import fault, part, prompt_class

_CLASS = "KV quant"
_PLAIN = ("cache:KVCache",)
# Of a row's quantized keys or values: the packed numbers, their scales and biases.
_SCALES, _BIASES = 1, 2


def _uniform() -> Any:
    return part("models.cache").BatchQuantizedKVCache


def _turbo() -> Any:
    return part("turboquant").BatchTurboQuantKVCache


def _last_layer(hits: Hits) -> AbstractContextManager[None]:
    owner = part("models.cache")
    real = owner.should_quantize_kv_layer

    def always(index: int, count: int) -> bool:
        if not real(index, count):
            hits.hit()
        return True

    return replaced(owner, "should_quantize_kv_layer", always)


@contextlib.contextmanager
def _made(change: Callable[[Any, Any], Any], hits: Hits) -> Iterator[None]:
    """``change(entry, make)`` for each cache of a quantized batch; ``make`` makes a uniform one."""
    owner = part("generate.ar")
    real = owner._make_cache

    def make_cache(model: Any, left_padding: Any, **options: Any) -> Any:
        entries = real(model, left_padding, **options)
        bits = options.get("kv_bits")
        if bits is None or part("turboquant").turboquant_enabled(bits, options["kv_quant_scheme"]):
            return entries

        def make() -> Any:
            hits.hit()
            group = options["kv_group_size"]
            return _uniform()(left_padding, group_size=group, bits=int(bits))

        return [change(entry, make) for entry in entries]

    with replaced(owner, "_make_cache", make_cache):
        yield


def _rotating(hits: Hits) -> AbstractContextManager[None]:
    rotating = part("models.cache").BatchRotatingKVCache
    return _made(lambda one, make: make() if isinstance(one, rotating) else one, hits)


def _composite(hits: Hits) -> AbstractContextManager[None]:
    composite = part("models.cache").CacheList
    return _made(lambda one, make: make() if isinstance(one, composite) else one, hits)


def _rolled(parts: Any, which: int) -> Any:
    return tuple(mx.roll(p, 1, 0) if at == which else p for at, p in enumerate(parts))


def _of_another(which: int, hits: Hits) -> AbstractContextManager[None]:
    """A join gives each row its neighbour's scales or biases."""
    real = _uniform().extend

    def extend(self: Any, other: Any) -> None:
        real(self, other)
        if self.keys is not None and self.batch_size > 1:
            hits.hit()
            self.keys, self.values = _rolled(self.keys, which), _rolled(self.values, which)

    return replaced(_uniform(), "extend", extend)


def _scales_on_join(hits: Hits) -> AbstractContextManager[None]:
    return _of_another(_SCALES, hits)


def _biases_on_join(hits: Hits) -> AbstractContextManager[None]:
    return _of_another(_BIASES, hits)


def _by_place(which: int, hits: Hits) -> AbstractContextManager[None]:
    """When rows leave, one of the parts keeps its first rows instead of those that stay."""
    real = _uniform().filter

    def filtered(self: Any, rows: Any) -> None:
        if self.keys is not None and rows.tolist() != list(range(rows.size)):
            hits.hit()
            # The order of rows in this part is such that the right choice takes the first ones.
            order = mx.zeros(self.batch_size, mx.int32)
            order[rows] = mx.arange(rows.size)
            self.keys = _ordered(self.keys, which, order)
            self.values = _ordered(self.values, which, order)
        real(self, rows)

    return replaced(_uniform(), "filter", filtered)


def _ordered(parts: Any, which: int, order: Any) -> Any:
    return tuple(p[order] if at == which else p for at, p in enumerate(parts))


def _scales_by_place(hits: Hits) -> AbstractContextManager[None]:
    return _by_place(_SCALES, hits)


def _biases_by_place(hits: Hits) -> AbstractContextManager[None]:
    return _by_place(_BIASES, hits)


def _packed_by_place(hits: Hits) -> AbstractContextManager[None]:
    return _by_place(0, hits)


def _tuple_out_of_step(hits: Hits) -> AbstractContextManager[None]:
    """When padding is cut off, the values' scales keep theirs."""
    real = _uniform().filter

    def filtered(self: Any, rows: Any) -> None:
        columns = self._idx
        real(self, rows)
        cut = columns - self._idx
        if cut and self.keys is not None:
            hits.hit()
            packed, scales, biases = self.values
            self.values = packed, mx.roll(scales, cut, -2), biases

    return replaced(_uniform(), "filter", filtered)


def _norms(state: Any, change: Callable[[Any], Any]) -> Any:
    """A state of TurboQuant with the norms of its vectors changed, wherever they are in it."""
    if not hasattr(state, "_fields"):
        return state
    values = {name: getattr(state, name) for name in state._fields}
    return state._replace(
        **{
            name: change(value) if name == "norms" else _norms(value, change)
            for name, value in values.items()
        }
    )


def _turbo_norms_on_join(hits: Hits) -> AbstractContextManager[None]:
    real = _turbo().extend

    def extend(self: Any, other: Any) -> None:
        real(self, other)
        if self.keys is not None and self.offset.size > 1:
            hits.hit()
            self.keys = _norms(self.keys, lambda a: mx.roll(a, 1, 0))
            self.values = _norms(self.values, lambda a: mx.roll(a, 1, 0))

    return replaced(_turbo(), "extend", extend)


def _turbo_norms_by_place(hits: Hits) -> AbstractContextManager[None]:
    real = _turbo().filter

    def filtered(self: Any, rows: Any) -> None:
        if self.keys is not None and rows.tolist() != list(range(rows.size)):
            hits.hit()
            order = mx.zeros(self.offset.size, mx.int32)
            order[rows] = mx.arange(rows.size)
            self.keys = _norms(self.keys, lambda a: a[order])
            self.values = _norms(self.values, lambda a: a[order])
        real(self, rows)

    return replaced(_turbo(), "filter", filtered)


def _coarse(array: Any) -> Any:
    """As it comes back from a cache of 2 bits."""
    packed = mx.quantize(array, group_size=32, bits=2)
    return mx.dequantize(*packed, group_size=32, bits=2).astype(array.dtype)


def _twice(owner: Callable[[], Any], hits: Hits) -> AbstractContextManager[None]:
    real = owner().update_and_fetch

    def update_and_fetch(self: Any, keys: Any, values: Any) -> Any:
        hits.hit()
        return real(self, _coarse(keys), _coarse(values))

    return replaced(owner(), "update_and_fetch", update_and_fetch)


def _uniform_twice(hits: Hits) -> AbstractContextManager[None]:
    return _twice(_uniform, hits)


def _turbo_twice(hits: Hits) -> AbstractContextManager[None]:
    return _twice(_turbo, hits)


@contextlib.contextmanager
def _plain_rows_merged(hits: Hits) -> Iterator[None]:
    """Prompts are prefilled as they are, and quantized when they come into the batch."""
    real_init, real_generate = prompt_class().__init__, prompt_class().generate
    asked: dict[int, dict[str, Any]] = {}

    def init(self: Any, *args: Any, **options: Any) -> None:
        bits = options.get("kv_bits")
        turbo = part("turboquant").turboquant_enabled
        if bits is not None and not turbo(bits, options["kv_quant_scheme"]):
            asked[id(self)] = {"bits": int(bits), "group_size": options["kv_group_size"]}
            options["kv_bits"] = None
        real_init(self, *args, **options)

    def generate(self: Any, *args: Any, **options: Any) -> Any:
        batch = real_generate(self, *args, **options)
        kind = asked.pop(id(self), None)
        if kind is not None:
            hits.hit()
            batch.prompt_cache = _converted(batch.prompt_cache, kind)
        return batch

    with (
        replaced(prompt_class(), "__init__", init),
        replaced(prompt_class(), "generate", generate),
    ):
        yield


def _converted(entries: Any, kind: dict[str, Any]) -> list[Any]:
    return [
        _quantize(entry, kind)
        if part("models.cache").should_quantize_kv_layer(at, len(entries))
        else entry
        for at, entry in enumerate(entries)
    ]


def _quantize(entry: Any, kind: dict[str, Any]) -> Any:
    caches = part("models.cache")
    rows = caches.KVCache.merge([entry]) if isinstance(entry, caches.KVCache) else entry
    if type(rows) is not caches.BatchKVCache:
        return entry
    keys, values, offset, left_padding = rows.state
    made = _uniform()(left_padding.tolist(), **kind)
    made.update_and_fetch(keys, values)
    made.offset = offset
    return made


_UNIFORM = "uniform bits"
FAULTS = (
    fault(
        "B20.last-layer-quantized",
        "KV quant policy",
        "mlx-vlm #1030",
        "the last layer is quantized too",
        _last_layer,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B20.rotating-layers-quantized",
        "KV quant policy",
        "mlx-vlm #1030",
        "layers with a sliding window are quantized, and lose their window",
        _rotating,
        kills="quantized",
        needs=("cache:RotatingKVCache", *_PLAIN),
    ),
    fault(
        "D3.composite-replaced-by-quantized",
        "cache kind",
        "a Swift engine's fork",
        "a composite cache is replaced by a plain quantized one",
        _composite,
        kills="quantized",
        needs=("cache:CacheList",),
        crash=True,
    ),
    fault(
        "D4.plain-rows-merged",
        "cache kind",
        "a Swift engine's fork",
        "unquantized rows are merged into a quantized batch",
        _plain_rows_merged,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.scales-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: a join gives each row its neighbour's scales",
        _scales_on_join,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.biases-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: a join gives each row its neighbour's biases",
        _biases_on_join,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.scales-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first scales stay",
        _scales_by_place,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.biases-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first biases stay",
        _biases_by_place,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.packed-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first packed numbers stay",
        _packed_by_place,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.tuple-out-of-step",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: padding is cut off all parts but the scales of values",
        _tuple_out_of_step,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.turbo-norms-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        "TurboQuant: a join gives each row its neighbour's norms",
        _turbo_norms_on_join,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.turbo-norms-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        "TurboQuant: when rows leave, the first norms stay",
        _turbo_norms_by_place,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.quantized-twice",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: keys and values come from another quantized cache",
        _uniform_twice,
        kills="quantized",
        needs=_PLAIN,
    ),
    fault(
        "B21.turbo-quantized-twice",
        _CLASS,
        "mlx-vlm #1030",
        "TurboQuant: keys and values come from another quantized cache",
        _turbo_twice,
        kills="quantized",
        needs=_PLAIN,
    ),
)
