"""Caches of keys and values: plain, rotating, quantized, TurboQuant; one row or a batch."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.power.caches.finding import Problem, Problems
from conformance.power.caches.kinds.kind import Kind, as_numpy
from conformance.power.caches.kinds.visibility import decoded, judged
from conformance.power.caches.rows import Array, Feed, Roundtrip, Row, TokenIndex, coded

HEADS = 2
WINDOW = 6
# A layer may attend to less than the cache holds.
NARROW = 3
_GROUP = 32
_BITS = 8
_TURBO_BITS = 4
# The largest error of a vector at 3 bits an element, as a share of its length. The mean square
# error in TurboQuant's paper is 0.03 for 3 bits: a fifth of the length.
_FAR = 0.4


class Attention(Kind):
    """Keys and values of each position, and a mask over them."""

    sizes = (4, 6)
    scaled = False
    window: int | None = None

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(list(padding))

    def partner(self) -> Kind:
        """The single-stream cache of keys and values."""
        return Stream(self.module, self.module.KVCache)

    def read(self, cache: Any, fetched: Any) -> tuple[Array, Array]:  # noqa: ARG002
        """Keys and values as plain arrays, from the result of ``update_and_fetch``."""
        keys, values = fetched
        return as_numpy(keys), as_numpy(values)

    def feed(self, cache: Any, feed: Feed) -> Problems:
        """Make the mask first, then update, like a model."""
        arrays = [
            coded(feed.grid, heads=HEADS, size=size, which=which, scaled=self.scaled)
            for which, size in enumerate(self.sizes)
        ]
        for which, vectors in enumerate(arrays):
            self.index.add(feed.grid, vectors, which)
            yield from self.inaccurate(which, vectors)
        kept = cache.offset
        was = kept.tolist() if isinstance(kept, mx.array) else None
        mask = cache.make_mask(feed.width, return_array=False, window_size=None)
        narrow = cache.make_mask(feed.width, return_array=False, window_size=NARROW)
        given = [mx.array(array).astype(self.dtype) for array in arrays]
        both = self.read(cache, cache.update_and_fetch(*given))
        if was is not None and kept.tolist() != was:
            yield Problem("alias", f"the offset read before is {was}, and now {kept.tolist()}")
        wanted = [(len(feed.rows), HEADS, both[0].shape[2], size) for size in self.sizes]
        shapes = [array.shape for array in both]
        if shapes != wanted:
            yield Problem("shape", f"keys and values of {shapes}, expected {wanted}")
            return
        held = [
            [
                key if key == value else None
                for key, value in zip(
                    self.index.read(both[0][row], 0),
                    self.index.read(both[1][row], 1),
                    strict=True,
                )
            ]
            for row in range(len(feed.rows))
        ]
        rows, columns = len(feed.rows), both[0].shape[2]
        visible = decoded(mask, rows=rows, width=feed.width, columns=columns)
        yield from judged(feed, held, visible, self.window)
        seen = decoded(narrow, rows=rows, width=feed.width, columns=columns)
        for problem in judged(feed, held, seen, NARROW):
            yield Problem(problem.what, f"with a window of {NARROW}: {problem.text}")

    def facts(self, cache: Any) -> set[str]:
        """The fact that the cache was never fed, if so."""
        return super().facts(cache) | ({"unfilled"} if cache.keys is None else set())

    def is_whole(self, rows: Sequence[Row]) -> bool:
        """Whether no window is full; padding may fill a batch's, so it counts as full."""
        if self.window is None:
            return True
        return self.single and max(map(len, rows)) < self.window

    def inaccurate(self, which: int, vectors: Array) -> Problems:  # noqa: ARG002
        """Check that a lossy cache keeps keys or values nearly; other caches change nothing."""
        yield from ()

    def size_of(self, rows: Sequence[Row]) -> int:
        """The columns of the longest row, up to the window."""
        longest = super().size_of(rows)
        return longest if self.window is None else min(longest, self.window)


class Rotating(Attention):
    """Keys and values of a window."""

    window = WINDOW

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(WINDOW, list(padding))

    def partner(self) -> Kind:
        """The single-stream cache of a window."""
        return RotatingStream(self.module, self.module.RotatingKVCache)


class Quantized(Attention):
    """Keys and values in groups with scale and bias."""

    sizes = (_GROUP, 2 * _GROUP)
    scaled = True

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(list(padding), group_size=_GROUP, bits=_BITS)

    def partner(self) -> Kind:
        """The kind of one row with the same quantization."""
        return QuantizedStream(self.module, self.module.QuantizedKVCache)

    def new_index(self) -> TokenIndex:
        """An index of vectors that were quantized and dequantized."""
        return TokenIndex([self._roundtrip, self._roundtrip])

    def _roundtrip(self, vectors: Array) -> Array:
        given = mx.array(vectors).astype(self.dtype)
        return _dequantized(mx.quantize(given, group_size=_GROUP, bits=_BITS))

    def read(self, cache: Any, fetched: Any) -> tuple[Array, Array]:  # noqa: ARG002
        """The dequantized keys and values."""
        keys, values = (_dequantized(parts) for parts in fetched)
        return keys, values


class Turbo(Attention):
    """Keys and values by TurboQuant's codecs, which depend only on size, bits and seed."""

    def __init__(
        self,
        module: ModuleType,
        cls: type[Any],
        bits: float = _TURBO_BITS,
        sizes: tuple[int, int] = (32, 32),
    ) -> None:
        self.bits = bits
        self.sizes = sizes
        super().__init__(module, cls)

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(list(padding), self.bits)

    def partner(self) -> Kind:
        """The kind of one row with the same quantization."""
        return TurboStream(self.module, self.module.TurboQuantKVCache, self.bits, self.sizes)

    def new_index(self) -> TokenIndex:
        """An index of vectors that were quantized and dequantized."""
        empty = [mx.zeros((1, HEADS, 1, size)) for size in self.sizes]
        codec_cache = self.module.TurboQuantKVCache(self.bits)
        codec_cache._ensure_codecs(*empty)
        codecs = (codec_cache.key_codec, codec_cache.value_codec)
        self._roundtrips = [_through(codec) for codec in codecs]
        return TokenIndex(self._roundtrips, near=True)

    def inaccurate(self, which: int, vectors: Array) -> Problems:
        """Check that quantized vectors keep their direction and length."""
        apart = np.linalg.norm(self._roundtrips[which](vectors) - vectors, axis=-1)
        worst = float((apart / np.linalg.norm(vectors, axis=-1)).max())
        if worst > _FAR:
            name = ("keys", "values")[which]
            yield Problem(
                "contents", f"{name} are {worst:.0%} of their length apart from those fed"
            )

    def facts(self, cache: Any) -> set[str]:
        """The fact that only columns in use are counted, if so."""
        held = [a for a in self.arrays(cache) if a.ndim > 2]  # without the arrays of codecs
        used = cache._idx if hasattr(cache, "_idx") else cache.offset
        in_use = sum(a.nbytes * used // a.shape[2] for a in held)
        counts = {"counts what is in use"} if cache.nbytes == in_use else set()
        return super().facts(cache) | counts

    def read(self, cache: Any, fetched: Any) -> tuple[Array, Array]:
        """Keys and values decoded by the cache's own codecs."""
        keys, values = cache.dequantize(*fetched)
        return as_numpy(keys), as_numpy(values)

    def dtypes(self, cache: Any) -> set[mx.Dtype]:  # noqa: ARG002
        """No dtypes: the codec chooses its own."""
        return set()


def _dequantized(parts: Any) -> Array:
    packed, scales, biases = parts
    return as_numpy(mx.dequantize(packed, scales, biases, group_size=_GROUP, bits=_BITS))


def _through(codec: Any) -> Roundtrip:
    """Encode and decode by the codec; the last result is reused, as callers ask twice."""
    last: dict[bytes, Array] = {}

    def roundtrip(vectors: Array) -> Array:
        key = vectors.tobytes()
        if key not in last:
            last.clear()
            last[key] = as_numpy(codec.dequantize(codec.quantize(mx.array(vectors))))
        return last[key]

    return roundtrip


class Stream(Attention):
    """The single-stream cache of keys and values."""

    single = True

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls()

    def partner(self) -> Kind:
        """The batch kind of plain rows."""
        return Attention(self.module, self.module.BatchKVCache)


class RotatingStream(Stream):
    """The single-stream cache of a window."""

    window = WINDOW

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(WINDOW)

    def partner(self) -> Kind:
        """The batch kind of windows."""
        return Rotating(self.module, self.module.BatchRotatingKVCache)


class BufferedStream(RotatingStream):
    """A window in a buffer with spare columns."""

    checks_size = False

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(WINDOW, buffer_size=3)


class QuantizedStream(Quantized):
    """The single-stream cache of quantized keys and values."""

    single = True

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(group_size=_GROUP, bits=_BITS)

    def partner(self) -> Kind:
        """The batch kind with the same quantization."""
        return Quantized(self.module, self.module.BatchQuantizedKVCache)


class TurboStream(Turbo):
    """The single-stream cache of TurboQuant."""

    single = True

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(self.bits)

    def partner(self) -> Kind:
        """The batch kind with the same quantization."""
        return Turbo(self.module, self.module.BatchTurboQuantKVCache, self.bits, self.sizes)
