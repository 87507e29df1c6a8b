"""Whether TurboQuant waits for its start: decided for each row by its own prompt."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import mlx.core as mx
from mlx_vlm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat


@mend("turboquant-start-of-longest-prompt")
def each_prompt_decides_about_the_start(hits: Hits) -> Patch:
    """A row is quantized if its own prompt is as long as the start, whatever is beside it.

    Prompts that decide otherwise are prefilled one group after another, and decode together.
    """
    module = compat.generation()

    def extend(right: Right, ours: list[Any], theirs: list[Any]) -> Any:
        joinable = [_joinable(*pair, hits) for pair in zip(ours, theirs, strict=False)]
        return right(joinable or ours, theirs)

    def step(right: Right, self: Any, **options: Any) -> Any:
        queue = self._unprocessed_sequences
        turbo = self.kv_bits is not None and module.turboquant_enabled(
            self.kv_bits, self.kv_quant_scheme
        )
        if not queue or not turbo:
            return right(self, **options)
        quantized = [len(entry[1]) >= self.quantized_kv_start for entry in queue]
        group = len(list(takewhile(lambda one: one is quantized[0], quantized)))
        hits.hit_if(group < min(len(queue), self.prefill_batch_size))
        # The others wait outside, or they would be admitted with the first ones.
        self._unprocessed_sequences = queue[:group]
        try:
            return right(self, **options)
        finally:
            self._unprocessed_sequences = self._unprocessed_sequences + queue[group:]

    return together(
        wrap(module, "_extend_cache", extend), wrap(module.BatchGenerator, "_next", step)
    )


def _joinable(ours: Any, theirs: Any, hits: Hits) -> Any:
    """Our cache, or one that rows of another kind can join."""
    if isinstance(ours, caches.CacheList):
        pairs = zip(ours.caches, theirs.caches, strict=True)
        ours.caches = tuple(_joinable(*pair, hits) for pair in pairs)
        return ours
    if {type(ours).__name__, type(theirs).__name__} != {"BatchKVCache", "BatchTurboQuantKVCache"}:
        return ours
    hits.hit()
    return _RowsOfBothKinds(ours)


class _RowsOfBothKinds:
    """Rows of which some are quantized; for attention it gives arrays of all of them.

    Attributes:
        parts: the cache of the plain rows, and that of the quantized ones, each in their order.
        kinds: of each row, the part that has it.
        keys: not one array; models that let it wait for another look it up, as they do values.
    """

    keys: Any = None
    values: Any = None

    def __init__(self, cache: Any) -> None:
        kind = int(hasattr(cache, "bits"))
        self.parts: dict[int, Any] = {kind: cache}
        self.kinds = [kind] * cache.batch_size
        # Layers that share keys read them off the state.
        self._given: list[mx.array] | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> list[mx.array]:
        found: dict[int, Any] = {}
        for kind, part in self.parts.items():
            rows = mx.array([row for row, own in enumerate(self.kinds) if own == kind])
            got = part.update_and_fetch(keys[rows], values[rows])
            found[kind] = part.dequantize(*got) if kind else got
        padded = {
            kind: [mx.pad(a.astype(keys.dtype), self._padding(kind)) for a in arrays]
            for kind, arrays in found.items()
        }
        self._given = [
            self._in_order(lambda kind: padded[kind][0]),
            self._in_order(lambda kind: padded[kind][1]),
        ]
        return self._given

    def filter(self, batch_indices: mx.array) -> None:
        self._given = None
        keep: Any = batch_indices.tolist()
        for kind in list(self.parts):
            place = [sum(k == kind for k in self.kinds[:row]) for row in keep]
            rows = [at for at, row in zip(place, keep, strict=True) if self.kinds[row] == kind]
            if rows:
                self.parts[kind].filter(mx.array(rows))
            else:
                del self.parts[kind]
        self.kinds = [self.kinds[row] for row in keep]

    def extend(self, other: Any) -> None:
        self._given = None
        other = other if isinstance(other, _RowsOfBothKinds) else _RowsOfBothKinds(other)
        for kind, part in other.parts.items():
            if kind in self.parts:
                self.parts[kind].extend(part)
            else:
                self.parts[kind] = part
        self.kinds += other.kinds

    def make_mask(self, N: int, return_array: bool = False, **options: Any) -> Any:  # noqa: ARG002, FBT001, FBT002, N803
        return caches.create_causal_mask(
            N, offset=self._idx, left_padding=self.left_padding, **options
        )

    @property
    def _idx(self) -> int:
        return int(max(part._idx for part in self.parts.values()))

    @property
    def offset(self) -> mx.array:
        return self._in_order(lambda kind: self.parts[kind].offset)

    @offset.setter
    def offset(self, value: mx.array) -> None:
        for kind, part in self.parts.items():
            part.offset = value[mx.array([r for r, own in enumerate(self.kinds) if own == kind])]

    @property
    def left_padding(self) -> mx.array:
        return self._in_order(
            lambda kind: self.parts[kind].left_padding + (self._idx - self.parts[kind]._idx)
        )

    @property
    def state(self) -> list[Any]:
        return self._given or [part.state for part in self.parts.values()]

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in self.parts.values())

    def size(self) -> int:
        return self._idx

    def empty(self) -> bool:
        return all(part.empty() for part in self.parts.values())

    def _padding(self, kind: int) -> list[tuple[int, int]]:
        """All rows end at the same column."""
        return [(0, 0), (0, 0), (self._idx - self.parts[kind]._idx, 0), (0, 0)]

    def _in_order(self, of: Callable[[int], mx.array]) -> mx.array:
        """The parts' arrays, in the order of the rows."""
        rows = [row for kind in self.parts for row, own in enumerate(self.kinds) if own == kind]
        return mx.concatenate([of(kind) for kind in self.parts])[mx.argsort(mx.array(rows))]
