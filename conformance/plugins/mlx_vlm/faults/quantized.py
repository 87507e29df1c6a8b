"""Faults of quantized keys and values: scales, biases and norms of another row; done twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "KV quant"
_PLAIN = ("cache:KVCache", "quantizable")
_GROUPED = ("cache:KVCache", "quantizable:*")
# Of a row's quantized keys or values: the packed numbers, their scales and biases.
_SCALES, _BIASES = 1, 2


def _uniform() -> Any:
    return part("models.cache").BatchQuantizedKVCache


def _turbo() -> Any:
    return part("turboquant").BatchTurboQuantKVCache


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


_UNIFORM = "uniform bits"
FAULTS = (
    fault(
        "B21.scales-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: a join gives each row its neighbour's scales",
        _scales_on_join,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.biases-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: a join gives each row its neighbour's biases",
        _biases_on_join,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.scales-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first scales stay",
        _scales_by_place,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.biases-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first biases stay",
        _biases_by_place,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.packed-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: when rows leave, the first packed numbers stay",
        _packed_by_place,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.tuple-out-of-step",
        _CLASS,
        "mlx-vlm #1030",
        f"{_UNIFORM}: padding is cut off all parts but the scales of values",
        _tuple_out_of_step,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.turbo-norms-of-another-row-on-join",
        _CLASS,
        "mlx-vlm #1030",
        "TurboQuant: a join gives each row its neighbour's norms",
        _turbo_norms_on_join,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_PLAIN,
    ),
    fault(
        "B21.turbo-norms-of-another-row-on-filter",
        _CLASS,
        "mlx-vlm #1030",
        "TurboQuant: when rows leave, the first norms stay",
        _turbo_norms_by_place,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_PLAIN,
    ),
)
