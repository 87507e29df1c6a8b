"""mlx-vlm as a library: loading, the single stream, the pass without a cache, the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx_vlm import utils
from mlx_vlm.models.cache import make_prompt_cache

from conformance.backend.checkpoint import fingerprint
from conformance.backend.description import cache_kinds, rope_kind, state_kinds
from conformance.backend.metering import attach_meter
from conformance.backend.perturbation import perturbed, perturbed_outside
from conformance.backend.recorded_processors import GivenDtype
from conformance.backend.sampling import ForcedSampler, ProcessorFn
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.library import Description, Outline, Solo
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Media, Request
from conformance.core.sensitivity import Sensitivity
from conformance.core.trace import Stream
from conformance.plugins.installed_library import InstalledLibrary
from conformance.plugins.mlx_vlm import (
    compat,
    inputs,
    loading,
    media_sensitivity,
    quantization,
)
from conformance.plugins.mlx_vlm.code_traits import code_traits
from conformance.plugins.mlx_vlm.inputs import in_numpy, inputs_of, plain_request, text_model
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.sampling import criteria_of, make_processors, make_sampler
from conformance.tools.checkpoints.folder import look

# Arguments that hold the type of each token of a prompt: 0 for text.
_TOKEN_TYPES = frozenset({"mm_token_type_ids", "token_type_ids"})
# Arguments that say what each prompt token attends to: later tokens are like the last one.
_ATTENDED = frozenset({"cross_attention_mask"})


class MlxVlm(InstalledLibrary):
    """The installed mlx-vlm. Its models are ``LoadedModel`` objects, reset before each run."""

    name: ClassVar[str] = "mlx_vlm"
    package: ClassVar[str] = "mlx_vlm"
    schemes: ClassVar[tuple[str, ...]] = ("uniform", "turboquant")
    filters: ClassVar[Mapping[str, float]] = {"top_n_sigma": 1.5, "p_less": True, "typical_p": 0.6}

    lazy = staticmethod(loading.lazy)
    tokenizer = staticmethod(loading.tokenizer)

    def check(self, folder: Path, *, trusted: bool = False) -> None:
        """See ``Library.check``; a file that the library opens for writing is refused.

        Source: ``mlx_vlm.utils._load_safetensors``.
        """
        for tensor in look(folder).tensors.values():
            if tensor.dtype in getattr(utils, "SAFETENSORS_DTYPE_FALLBACKS", ()):
                raise Unsupported(
                    f"{tensor.file} holds {tensor.dtype}, and mlx-vlm rewrites the header of such "
                    "a file while it loads it; convert the checkpoint first"
                )
        super().check(folder, trusted=trusted)

    def load(self, family: Family, *, dtype: str, seed: int) -> Any:
        """See ``Library.load``."""
        return loading.load(family, dtype=dtype, seed=seed)

    def write(self, family: Family, folder: Path, *, dtype: str, seed: int) -> None:
        """See ``Library.write``."""
        loading.write_checkpoint(family, folder, dtype=dtype, seed=seed)

    def describe(self, model: LoadedModel) -> Description:
        """See ``Library.describe``: describes the language model."""
        text = text_model(model)
        cache = text.cache()
        config = model.family.config
        kinds = cache_kinds(cache)
        rope = rope_kind(config, model.language_model, lambda: text.forward([1], cache))
        states = state_kinds(cache, model.language_model, lambda: text.forward([1, 2], cache))
        return Description(kinds, rope, states, cache_kinds(cache[:-1]))

    def code_traits(self, model: LoadedModel) -> frozenset[str]:
        """See ``Library.code_traits``."""
        return code_traits(model)

    def outline(self, family: Family) -> Outline:
        """See ``Library.outline``."""
        return loading.outlined(family)

    def meter(self, model: LoadedModel, *, evaluate: bool = False) -> list[ForwardCall]:
        """See ``Library.meter``: calls of the language model."""
        return attach_meter(model.language_model, evaluate=evaluate)

    def decoder(self, model: LoadedModel) -> Any:
        """See ``Library.decoder``."""
        return model.language_model

    def compose(
        self, model: LoadedModel, parts: Sequence[tuple[int, ...] | Media]
    ) -> tuple[tuple[int, ...], tuple[Media, ...]]:
        """See ``Library.compose``."""
        return inputs.compose(model, parts)

    def processed(self, model: LoadedModel, request: Request) -> dict[str, Any]:
        """See ``Library.processed``: pixels, and the processor's other outputs."""
        made = inputs_of(model, request)
        shown = {} if made.pixel_values is None else {"pixel_values": made.pixel_values}
        return {name: in_numpy(value) for name, value in {**shown, **made.extra}.items()}

    def puts_media_last(self, model: LoadedModel) -> bool:
        """See ``Library.puts_media_last`` and ``mlx_vlm.prompt_utils.MODEL_CONFIG``."""
        return inputs.puts_image_last(model)

    def single_stream(
        self,
        model: LoadedModel,
        request: Request,
        *,
        options: EngineOptions,
        steps: int,
        prefix: Any = None,
        forced: tuple[int, ...] | None = None,
    ) -> Solo:
        """See ``Library.single_stream``: ``generate_step`` with the same inputs.

        ``generate_step`` passes a piece's ids as ``inputs``; models with another name for them get
        whole prompts, as they would have no oracle otherwise. ``again`` has no such workaround.
        """
        model.fresh()
        cache = prefix if prefix is not None else cache_of(model, request, options)
        sampler = ForcedSampler(forced) if forced else make_sampler(request.sampler)
        size = options.prefill_step_size if model.takes_pieces else None
        stream = decode(model, request, size, steps, cache=cache, sampler=sampler)
        return Solo(stream, cache)

    def again(
        self, model: LoadedModel, request: Request, *, options: EngineOptions, steps: int
    ) -> Stream:
        """See ``Library.again``."""
        model.fresh()
        cache = cache_of(model, request, options)
        return decode(model, request, options.prefill_step_size, steps, cache=cache, sampler=None)

    def logits_dtype(self, model: LoadedModel, request: Request, options: EngineOptions) -> str:
        """See ``Library.logits_dtype``."""
        model.fresh()
        given, cache = GivenDtype(), cache_of(model, request, options)
        decode(model, request, None, 1, cache=cache, sampler=None, processors=[given])
        return given.dtype

    def stateless(
        self, model: LoadedModel, request: Request, tokens: tuple[int, ...]
    ) -> np.ndarray | None:
        """See ``Library.stateless``: the prompt and all tokens embedded and passed at once."""
        if not text_only(model, tokens):
            return None
        model.fresh()
        made = inputs_of(model, request)
        ids = mx.concatenate([made.input_ids, mx.array([tokens], made.input_ids.dtype)], axis=1)
        extra = dict(made.extra)
        for name in extra.keys() & _TOKEN_TYPES:
            extra[name] = mx.pad(extra[name], [(0, 0), (0, len(tokens))])
        for name in extra.keys() & _ATTENDED:
            last = mx.repeat(extra[name][:, -1:], len(tokens), axis=1)
            extra[name] = mx.concatenate([extra[name], last], axis=1)
        whole = inputs.Inputs(ids, made.pixel_values, mx.ones(ids.shape, mx.int32), extra)
        output = model.language_model(ids, **inputs.embed(model, whole))
        row: np.ndarray = logprobs_of(output.logits[:, -1, :])[0]
        return row

    def teacher_forced(
        self,
        model: LoadedModel,
        request: Request,
        tokens: tuple[int, ...],
        *,
        options: EngineOptions,
        ulps: float = 0.0,
        seed: int = 0,
    ) -> np.ndarray:
        """See ``Library.teacher_forced``: text in one pass, other requests in the single stream.

        With media, the inputs of a prompt may be wrong for a longer one, and a generated token must
        not stand for an image. Logits processors are called at each step. Quantized caches are read
        while they are written.
        """
        plain = not (request.media or request.processors or options.kv)
        if plain and text_only(model, tokens[:-1]):
            with self.decoder_perturbed(model, ulps=ulps, seed=seed):
                table = one_pass(model, request.prompt + tokens[:-1])
            if len(table) >= len(tokens):
                return table[-len(tokens) :]
        model.fresh()
        cache = cache_of(model, request, EngineOptions(kv=options.kv))
        size = EngineOptions().prefill_step_size if model.takes_pieces else None
        sampler = ForcedSampler(tokens)
        if not ulps:
            stream = decode(model, request, size, len(tokens), cache=cache, sampler=sampler)
        else:
            with self.decoder_perturbed(model, ulps=ulps, seed=seed):
                stream = decode(model, request, size, len(tokens), cache=cache, sampler=sampler)
        assert stream.logprobs is not None
        return stream.logprobs

    def decoder_perturbed(
        self, model: LoadedModel, *, ulps: float, seed: int
    ) -> AbstractContextManager[None]:
        """See ``Library.decoder_perturbed``."""
        return perturbed(model.language_model, ulps=ulps, seed=seed)

    def encoders_perturbed(
        self, model: LoadedModel, *, ulps: float, seed: int
    ) -> AbstractContextManager[None]:
        """See ``Library.encoders_perturbed``."""
        return perturbed_outside(model.model, model.language_model, ulps=ulps, seed=seed)

    def sensitivity(self, family: Family, *, dtype: str, seed: int) -> Sensitivity:
        """See ``Library.sensitivity``; each kind of media has signals of its own."""
        return media_sensitivity.measure(loading.load(family, dtype=dtype, seed=seed))

    def fingerprint(self, model: LoadedModel) -> str:
        """See ``Library.fingerprint``."""
        return fingerprint(model.fresh().model)

    def head_sizes(self, model: LoadedModel) -> frozenset[int]:
        """See ``Library.head_sizes``: taken from caches after a prompt of two tokens."""
        low, _ = model.family.tokens
        request = plain_request(model, (low, low + 1), 1)
        used = make_prompt_cache(model.fresh().language_model)
        decode(model, request, 2, 1, cache=used, sampler=None)
        return quantization.head_sizes(used)

    def policy_stream(
        self,
        model: LoadedModel,
        request: Request,
        tokens: tuple[int, ...],
        *,
        options: EngineOptions,
    ) -> np.ndarray | None:
        """See ``Library.policy_stream``: ``generate_step(kv_bits=...)``, which makes its caches."""
        if options.kv is None:
            return None
        model.fresh()
        stream = decode(
            model,
            request,
            options.prefill_step_size,
            len(tokens),
            cache=None,
            sampler=ForcedSampler(tokens),
            **compat.kv_arguments(options.kv),
        )
        return stream.logprobs


def text_only(model: LoadedModel, tokens: tuple[int, ...]) -> bool:
    """Whether no token could be mistaken for the placeholder of an image."""
    low, high = model.family.tokens
    mixed = model.family.facts.modalities != ("text",)
    return not mixed or all(low <= token < high for token in tokens)


def cache_of(model: LoadedModel, request: Request, options: EngineOptions) -> list[Any]:
    """The caches of one row for ``request``, quantized if the options say so."""
    if options.kv is not None:
        return quantization.make_cache(model.language_model, options.kv, len(request.prompt))
    made: list[Any] = make_prompt_cache(model.language_model, options.max_kv_size)
    return made


def decode(
    model: LoadedModel,
    request: Request,
    step_size: int | None,
    steps: int,
    *,
    cache: list[Any] | None,
    sampler: Callable[[mx.array], mx.array] | None,
    processors: Sequence[ProcessorFn] = (),
    **options: Any,
) -> Stream:
    """The first ``steps`` tokens of the library's own single stream, with their logprobs.

    Args:
        processors: to apply before the request's.
    """
    made = inputs_of(model, request)
    tokens, rows = [], []
    criteria = criteria_of(request.budget) if request.budget is not None else None
    if criteria is not None:
        options["thinking_budget_criteria"] = criteria
    for token, logprobs in compat.generation().generate_step(
        made.input_ids,
        model.model,
        made.pixel_values,
        made.attention_mask,
        max_tokens=steps,
        sampler=sampler,
        logits_processors=[*processors, *make_processors(request.processors)] or None,
        prompt_cache=cache,
        prefill_step_size=step_size,
        **options,
        **made.extra,
    ):
        tokens.append(int(token))
        rows.append(logprobs)
        if criteria is not None:
            criteria(int(token))
    table = np.array(mx.stack(rows).astype(mx.float32))  # [steps, vocab]
    return Stream(tokens=tuple(tokens), logprobs=table)


def one_pass(model: LoadedModel, tokens: tuple[int, ...]) -> np.ndarray:
    """Logprobs ``[length, vocab]`` of a prefill of all tokens; some models return fewer."""
    cache = model.cache()
    made = inputs_of(model, Request("whole", tokens, 1))
    output = model.language_model(made.input_ids, cache=cache, **inputs.embed(model, made))
    return logprobs_of(output.logits[0])


def logprobs_of(logits: mx.array) -> np.ndarray:
    """Logprobs ``[..., vocab]`` in float32, normalised like the library in the logits' dtype."""
    return np.array((logits - mx.logsumexp(logits, axis=-1, keepdims=True)).astype(mx.float32))
