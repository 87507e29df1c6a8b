"""Faults of quantized keys and values: scales, biases and norms of another row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.mlx_vlm.library_parts import turbo_class, uniform_class
from conformance.power.faults.mlx_vlm.tools import GROUPED, QUANTIZABLE, mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="KV quant",
    source="mlx-vlm #1030",
    kills=("quantized",),
    where="cache:*Quant*KVCache:*",
    needs=GROUPED,
)
# Of a row's quantized keys or values: the packed numbers, their scales and biases.
_PACKED, _SCALES, _BIASES = range(3)
# Gives keys or values in which one part's rows are changed by the function.
Part = Callable[[Any, Callable[[mx.array], mx.array]], Any]


def _uniform(which: int) -> Part:
    def changed(parts: Any, change: Callable[[mx.array], mx.array]) -> Any:
        return tuple(change(one) if at == which else one for at, one in enumerate(parts))

    return changed


def _norms(state: Any, change: Callable[[mx.array], mx.array]) -> Any:
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


def _change(cache: Any, part: Part, change: Callable[[mx.array], mx.array]) -> None:
    cache.keys, cache.values = part(cache.keys, change), part(cache.values, change)


def _rolled_on_join(owner: Any, part: Part, hits: Hits) -> Patch:
    """A join gives each row its neighbour's part."""

    def roll(_: None, self: Any, __: Any) -> None:
        if self.keys is not None and self.offset.size > 1:
            hits.hit()
            _change(self, part, lambda rows: mx.roll(rows, 1, 0))

    return after(owner, "extend", roll)


def _by_place_on_filter(owner: Any, part: Part, hits: Hits) -> Patch:
    """When rows leave, a part keeps its first rows instead of those that stay."""

    def filter_rows(right: Right, self: Any, rows: Any) -> None:
        if self.keys is not None and rows.tolist() != list(range(rows.size)):
            hits.hit()
            # The order of rows in this part is such that the right choice takes the first ones.
            order = mx.zeros(self.offset.size, mx.int32)
            order[rows] = mx.arange(rows.size)
            _change(self, part, lambda one: one[order])
        right(self, rows)

    return wrap(owner, "filter", filter_rows)


@_fault("B21.scales-of-another-row-on-join")
def scales_of_another_row_on_join(hits: Hits) -> Patch:
    """Uniform bits: a join gives each row its neighbour's scales."""
    return _rolled_on_join(uniform_class(), _uniform(_SCALES), hits)


@_fault("B21.biases-of-another-row-on-join")
def biases_of_another_row_on_join(hits: Hits) -> Patch:
    """Uniform bits: a join gives each row its neighbour's biases."""
    return _rolled_on_join(uniform_class(), _uniform(_BIASES), hits)


@_fault("B21.scales-of-another-row-on-filter")
def scales_of_another_row_on_filter(hits: Hits) -> Patch:
    """Uniform bits: when rows leave, the first scales stay."""
    return _by_place_on_filter(uniform_class(), _uniform(_SCALES), hits)


@_fault("B21.biases-of-another-row-on-filter")
def biases_of_another_row_on_filter(hits: Hits) -> Patch:
    """Uniform bits: when rows leave, the first biases stay."""
    return _by_place_on_filter(uniform_class(), _uniform(_BIASES), hits)


@_fault("B21.packed-of-another-row-on-filter")
def packed_of_another_row_on_filter(hits: Hits) -> Patch:
    """Uniform bits: when rows leave, the first packed numbers stay."""
    return _by_place_on_filter(uniform_class(), _uniform(_PACKED), hits)


@_fault("B21.tuple-out-of-step")
def tuple_out_of_step(hits: Hits) -> Patch:
    """Uniform bits: padding is cut off all parts but the scales of values."""

    def filter_rows(right: Right, self: Any, rows: Any) -> None:
        columns = self._idx
        right(self, rows)
        cut = columns - self._idx
        if cut and self.keys is not None:
            hits.hit()
            self.values = _uniform(_SCALES)(self.values, lambda scales: mx.roll(scales, cut, -2))

    return wrap(uniform_class(), "filter", filter_rows)


@_fault("B21.turbo-norms-of-another-row-on-join", needs=QUANTIZABLE)
def turbo_norms_of_another_row_on_join(hits: Hits) -> Patch:
    """TurboQuant: a join gives each row its neighbour's norms."""
    return _rolled_on_join(turbo_class(), _norms, hits)


@_fault("B21.turbo-norms-of-another-row-on-filter", needs=QUANTIZABLE)
def turbo_norms_of_another_row_on_filter(hits: Hits) -> Patch:
    """TurboQuant: when rows leave, the first norms stay."""
    return _by_place_on_filter(turbo_class(), _norms, hits)
