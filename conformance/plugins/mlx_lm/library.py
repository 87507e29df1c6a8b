"""mlx-lm as a library: loading, the single stream, the pass without a cache, the noise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

from conformance.backend.cache_entries import leaves
from conformance.backend.checkpoint import fingerprint
from conformance.backend.code_traits import filled, parts
from conformance.backend.description import cache_kinds, rope_kind, state_kinds
from conformance.backend.metering import attach_meter
from conformance.backend.perturbation import perturbed
from conformance.backend.recorded_processors import GivenDtype
from conformance.backend.sampling import ForcedSampler
from conformance.backend.sensitivity_measure import measure
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Family
from conformance.core.library import Description, Outline, Solo
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Request
from conformance.core.sensitivity import Sensitivity
from conformance.core.trace import Stream
from conformance.plugins.installed_library import InstalledLibrary
from conformance.plugins.mlx_lm import compat, loading
from conformance.plugins.mlx_lm.legacy import uncached
from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler
from conformance.reference.forward import Feed, forward, single_row


class MlxLm(InstalledLibrary):
    """The installed mlx-lm. Its models are plain ``nn.Module`` objects."""

    name: ClassVar[str] = "mlx_lm"
    package: ClassVar[str] = "mlx_lm"

    lazy = staticmethod(loading.lazy)
    tokenizer = staticmethod(loading.tokenizer)

    def load(self, family: Family, *, dtype: str, seed: int) -> Any:
        """See ``Library.load``."""
        return loading.load(family, dtype=dtype, seed=seed).model

    def write(self, family: Family, folder: Path, *, dtype: str, seed: int) -> None:
        """See ``Library.write``."""
        loading.write_checkpoint(family, folder, dtype=dtype, seed=seed)

    def describe(self, model: Any) -> Description:
        """See ``Library.describe``."""
        cache = make_prompt_cache(model)
        config = vars(getattr(model, "args", None) or model.config)
        kinds = cache_kinds(cache)
        rope = rope_kind(config, model, lambda: model(mx.array([[1]]), cache=cache))
        states = state_kinds(cache, model, lambda: model(mx.array([[1, 2]]), cache=cache))
        return Description(kinds, rope, states, cache_kinds(cache[:-1]))

    def code_traits(self, model: Any) -> frozenset[str]:
        """See ``Library.code_traits``."""
        return code_traits(model)

    def outline(self, family: Family) -> Outline:
        """See ``Library.outline``."""
        return loading.outlined(family)

    def meter(self, model: Any, *, evaluate: bool = False) -> list[ForwardCall]:
        """See ``Library.meter``."""
        return attach_meter(model, evaluate=evaluate)

    def bounds_caches(self, model: Any) -> bool:
        """See ``Library.bounds_caches`` and ``mlx_lm.models.cache.make_prompt_cache``."""
        return not hasattr(model, "make_cache")

    def single_stream(
        self,
        model: Any,
        request: Request,
        *,
        options: EngineOptions,
        steps: int,
        prefix: Any = None,
        forced: tuple[int, ...] | None = None,
    ) -> Solo:
        """See ``Library.single_stream``: ``mlx_lm.generate.generate_step``.

        All segments except the last are fed as the library feeds the pieces of a prompt.
        """
        cache = prefix if prefix is not None else _cache(model, request, options)
        prompt, step_size = request.prompt, options.prefill_step_size
        for length in request.segments[:-1]:
            for start in range(0, length, step_size):
                piece = prompt[start : min(start + step_size, length)]
                model(mx.array(piece)[None], cache=cache)
                mx.eval([c.state for c in cache])
            prompt = prompt[length:]
        tokens, rows = [], []
        for token, logprobs in generate_step(
            mx.array(prompt),
            model,
            max_tokens=steps,
            sampler=ForcedSampler(forced) if forced else make_sampler(request.sampler),
            logits_processors=make_processors(request.processors) or None,
            prompt_cache=cache,
            prefill_step_size=step_size,
        ):
            tokens.append(int(token))
            rows.append(logprobs)
        table = np.array(mx.stack(rows).astype(mx.float32))  # [steps, vocab]
        return Solo(Stream(tokens=tuple(tokens), logprobs=table), cache)

    def logits_dtype(self, model: Any, request: Request, options: EngineOptions) -> str:
        """See ``Library.logits_dtype``."""
        given, cache = GivenDtype(), _cache(model, request, options)
        prompt = mx.array(request.prompt)
        decoded = generate_step(
            prompt, model, max_tokens=1, logits_processors=[given], prompt_cache=cache
        )
        next(decoded)
        decoded.close()
        return given.dtype

    def reloaded(self, cache: Any) -> Any | None:
        """The cache after ``save_prompt_cache`` and ``load_prompt_cache``."""
        return compat.reloaded(cache)

    def stateless(self, model: Any, request: Request, tokens: tuple[int, ...]) -> np.ndarray:
        """See ``Library.stateless``."""
        logits = uncached(model, mx.array(request.prompt + tokens)[None])[:, -1, :]
        row: np.ndarray = _logprobs(logits)[0]
        return row

    def equal_rows(
        self, model: Any, request: Request, tokens: tuple[int, ...], rows: int
    ) -> np.ndarray:
        """See ``Library.equal_rows``: copies of one row's caches, which share the last pass."""
        *before, last = request.prompt + tokens
        caches = _cache(model, request, EngineOptions())
        if before:
            single_row(model, Feed(caches, tuple(before)))
        logits = forward(model, [Feed(copy.deepcopy(caches), (last,)) for _ in range(rows)])
        return _logprobs(mx.concatenate(logits))

    def decoder_perturbed(
        self, model: Any, *, ulps: float, seed: int
    ) -> AbstractContextManager[None]:
        """See ``Library.decoder_perturbed``."""
        return perturbed(model, ulps=ulps, seed=seed)

    def teacher_forced(
        self,
        model: Any,
        request: Request,
        tokens: tuple[int, ...],
        *,
        options: EngineOptions,
        ulps: float = 0.0,
        seed: int = 0,
    ) -> np.ndarray:
        """See ``Library.teacher_forced``: one prefill of all tokens into a fresh cache.

        Attention reads quantized keys and values in this one pass, as it would in many.
        """
        fed = request.prompt + tokens[:-1]
        inputs = mx.array(fed)[None]
        cache = _cache(model, request, EngineOptions(kv=options.kv))
        if ulps:
            with self.decoder_perturbed(model, ulps=ulps, seed=seed):
                logits = model(inputs, cache=cache)
        else:
            logits = model(inputs, cache=cache)
        if logits.shape[1] != len(fed):
            raise ModelError(
                f"one pass over {len(fed)} tokens gave logits for {logits.shape[1]} positions"
            )
        return _logprobs(logits[0, -len(tokens) :])

    def fingerprint(self, model: Any) -> str:
        """See ``Library.fingerprint``."""
        return fingerprint(model)

    def head_sizes(self, model: Any) -> frozenset[int]:
        """See ``Library.head_sizes``: taken from caches after a prompt of two tokens."""
        used = make_prompt_cache(model)
        mx.eval(model(mx.array([[1, 2]]), cache=used))
        return head_sizes(used)

    def sensitivity(self, family: Family, *, dtype: str, seed: int) -> Sensitivity:
        """See ``Library.sensitivity``."""
        return measure(loading.load(family, dtype=dtype, seed=seed))


def _cache(model: Any, request: Request, options: EngineOptions) -> list[Any]:
    if options.kv is not None:
        return make_cache(model, options.kv, len(request.prompt))
    made: list[Any] = make_prompt_cache(model, options.max_kv_size)
    return made


def _logprobs(logits: mx.array) -> np.ndarray:
    """Logprobs ``[..., vocab]`` in float32, normalised like the library in the logits' dtype."""
    return np.array((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).astype(mx.float32))


# mlx-lm's batches quantize nothing. Its single stream (``generate_step(kv_bits=...)``) quantizes
# the first piece of a prompt only after reading it, and refuses rotating caches. Here a cache is
# quantized from its first token on, if the prompt is at least as long as the start, so attention
# does not depend on where pieces end. Windows, states and other entries of a ``CacheList`` than
# keys and values are not quantized. The reference engine does the same in its own code.
def make_cache(model: Any, kv: KvQuant, prompt_length: int) -> list[Any]:
    """A cache for one request, quantized as ``kv`` says.

    Raises:
        Unsupported: the library has no caches of this scheme.
    """
    if kv.scheme != "uniform" or kv.bits != int(kv.bits):
        raise Unsupported(f"mlx-lm has no caches of {kv.bits} bits, {kv.scheme}: not supported")
    plain: list[Any] = caches.make_prompt_cache(model)
    if prompt_length < kv.start:
        return plain
    return [_quantized(entry, kv) for entry in plain]


def head_sizes(used: list[Any]) -> frozenset[int]:
    """The sizes of keys and values in the used caches that can be quantized, which are plain ones.

    The index of a sparse attention has no values and is recognized by its keys alone.
    """
    return frozenset(
        int(array.shape[-1])
        for leaf in leaves(used)
        if type(leaf) is caches.KVCache
        for array in (leaf.keys, leaf.values)
        if array is not None and array.shape[-1]
    )


def _quantized(entry: Any, kv: KvQuant) -> Any:
    if isinstance(entry, caches.CacheList):
        return caches.CacheList(*(_quantized(one, kv) for one in entry.caches))
    if type(entry) is caches.KVCache:
        return caches.QuantizedKVCache(group_size=kv.group_size, bits=int(kv.bits))
    return entry


_PROMPTS = ((1, 2, 3), (1, 2, 3, 4, 5))
_FURTHER = 3


def code_traits(model: Any) -> frozenset[str]:
    """``part:``, ``last:``, ``unfilled:``, ``keys:uneven`` and ``offset:unread``.

    The last means that no position is computed from the offsets of a batch cache of keys.
    """
    cache = make_prompt_cache(model)
    model(mx.array([_PROMPTS[0]]), cache=cache)
    return parts(model, "mlx_lm") | frozenset(filled(cache)) | frozenset(_unread(model))


def _unread(model: Any) -> Iterator[str]:
    try:
        right = _step(model)
        for place, entry in enumerate(leaves(_batch(model))):
            moved = isinstance(entry, BatchKVCache) and _step(model, further=place)
            if moved is not False and mx.array_equal(moved, right).item():
                yield "offset:unread"
                return
    except Exception:  # noqa: BLE001 - a model that takes no batch at all has other defects
        return


def _batch(model: Any) -> list[Any]:
    rows = []
    for prompt in _PROMPTS:
        row = make_prompt_cache(model)
        mx.eval(model(mx.array([prompt]), cache=row))
        rows.append(row)
    return [type(one).merge([one, other]) for one, other in zip(*rows, strict=True)]


def _step(model: Any, *, further: int | None = None) -> mx.array:
    """The logits of one step of both rows, with the offset of one cache increased."""
    batch = _batch(model)
    if further is not None:
        entry = list(leaves(batch))[further]
        entry.offset = entry.offset + _FURTHER
    logits: mx.array = model(mx.array([[2], [4]]), cache=batch)
    return logits
