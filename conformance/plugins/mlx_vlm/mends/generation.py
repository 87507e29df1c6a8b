"""Defects of `generate_step` and `BatchGenerator`: invalid calls, chosen tokens, needless work."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_vlm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.library_parts import part

# The language models whose parameter of token ids has another name than `inputs`.
_OTHER_NAMES = ("phi", "phixtral", "qwen", "recurrent_gemma", "stablelm", "zaya1_vl")


@mend(
    "penalty-of-last-token",
    "penalty-of-last-token-after-prefix",
    "penalty-of-last-token-served",
    single_stream=True,
)
def processors_see_the_whole_prompt(hits: Hits) -> Patch:
    """A logits processor gets all tokens of the prompt, also of its earlier pieces."""

    def generate_step(right: Right, input_ids: mx.array, *args: Any, **options: Any) -> Any:
        prompt = input_ids.flatten()
        given = options.get("logits_processors")
        if given:
            options["logits_processors"] = [_after_prompt(one, prompt, hits) for one in given]
        return right(input_ids, *args, **options)

    return wrap(compat.generation(), "generate_step", generate_step)


def _after_prompt(processor: Any, prompt: mx.array, hits: Hits) -> Any:
    """The processor, which also gets those tokens of the prompt that were not noted."""
    lacking: mx.array | None = None

    def processed(tokens: mx.array, logits: mx.array) -> Any:
        nonlocal lacking
        if lacking is None:
            lacking = prompt[: max(0, prompt.size - tokens.size)]
        hits.hit_if(lacking.size)
        return processor(mx.concatenate([lacking, tokens.astype(prompt.dtype)]), logits)

    return processed


@mend("generate-step-names-inputs", "generate-step-names-inputs-quantized", single_stream=True)
def pieces_are_passed_by_position(hits: Hits) -> Patch:
    """The ids of a piece of the prompt come to the model's parameter of ids, whatever its name."""

    def call(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        if "inputs" not in options:
            return right(self, *args, **options)
        hits.hit()
        return right(self, options.pop("inputs"), *args, **options)

    names = (f"mlx_vlm.models.{name}.language" for name in _OTHER_NAMES)
    models = [importlib.import_module(name).LanguageModel for name in names]
    return together(*(wrap(model, "__call__", call) for model in models))


@mend("kv-policy-alone-and-batched", single_stream=True)
def alone_quantized_as_in_a_batch(hits: Hits) -> Patch:
    """`generate_step` quantizes the layers that a batch quantizes, and from the same token on."""
    module = compat.generation()

    def generate_step(
        right: Right, input_ids: mx.array, model: Any, *args: Any, **given: Any
    ) -> Any:
        if given.get("kv_bits") is None or given.get("prompt_cache") is not None:
            return right(input_ids, model, *args, **given)
        hits.hit()
        names = ("kv_bits", "kv_group_size", "kv_quant_scheme", "quantized_kv_start")
        policy = {name: given.pop(name) for name in names if name in given}
        plain = caches.make_prompt_cache(model.language_model)
        batch = module._make_cache(
            model.language_model, [0], **policy, prefill_length=input_ids.shape[1]
        )
        given["prompt_cache"] = [_as_in(*pair, policy) for pair in zip(plain, batch, strict=True)]
        return right(input_ids, model, *args, **given)

    return wrap(module, "generate_step", generate_step)


def _as_in(plain: Any, batch: Any, policy: dict[str, Any]) -> Any:
    """The cache of one row that is quantized if the batch's cache is."""
    turboquant = part("turboquant")
    if isinstance(batch, caches.CacheList):
        inner = plain if isinstance(plain, tuple) else plain.caches
        made = [_as_in(*pair, policy) for pair in zip(inner, batch.caches, strict=True)]
        return tuple(made) if isinstance(plain, tuple) else caches.CacheList(*made)
    if isinstance(batch, turboquant.BatchTurboQuantKVCache):
        return turboquant.TurboQuantKVCache(bits=policy["kv_bits"])
    if isinstance(batch, caches.BatchQuantizedKVCache):
        return caches.QuantizedKVCache(group_size=batch.group_size, bits=batch.bits)
    return plain


_SIZES = ("completion_batch_size", "prefill_batch_size", "prefill_step_size")
_SCHEMES = ("uniform", "turboquant")


@mend("fewer-slots-than-prefill")
def as_many_are_let_in_as_have_room(hits: Hits) -> Patch:
    """Requests are let in as soon as a slot is free, as many as there are slots."""
    name = "prefill_batch_size"

    def room(self: Any) -> int:
        size = int(vars(self)[name])
        free = self.completion_batch_size - len(self._generation_batch)
        fewer = 0 < free < size
        hits.hit_if(fewer and self._unprocessed_sequences)
        return free if fewer else size

    def keep(self: Any, size: int) -> None:
        vars(self)[name] = size

    return replace(compat.generation().BatchGenerator, name, property(room, keep))


@mend("insert-lists-of-other-lengths")
def lists_are_of_one_length(hits: Hits) -> Patch:
    """Lists that are not as long as that of the prompts are refused, and so are embeddings.

    No prompt of those that are inserted here has a token that stands for several embeddings.
    """

    def check(
        _: Any, prompts: Any, max_tokens: Any = None, prompt_kwargs: Any = None, **__: Any
    ) -> None:
        lists = [each for each in (max_tokens, prompt_kwargs) if isinstance(each, Sequence)]
        wrong = any(len(each) != len(prompts) for each in lists) or any(
            embedded is not None and embedded.shape[1] != len(prompt)
            for prompt, given in zip(prompts, prompt_kwargs or (), strict=False)
            for embedded in [given.get("inputs_embeds")]
        )
        hits.hit_if(wrong)
        if wrong:
            raise ValueError("max_tokens, prompt_kwargs and embeddings must be as many as prompts")

    return before(compat.generation().BatchGenerator, "insert", check)


@mend("requests-without-work", "requests-without-work-have-positions")
def requests_have_work(hits: Hits) -> Patch:
    """A prompt of no tokens is refused, and so are `max_tokens` below 1."""

    def check(_: Any, prompts: Any, max_tokens: Any = None, **__: Any) -> None:
        counts = max_tokens if isinstance(max_tokens, Sequence) else [max_tokens]
        wrong = not all(map(len, prompts)) or any(n is not None and n < 1 for n in counts)
        hits.hit_if(wrong)
        if wrong:
            raise ValueError("a prompt and max_tokens must be at least 1 long")

    return before(compat.generation().BatchGenerator, "insert", check)


@mend("generator-takes-any-size")
def sizes_and_scheme_are_checked(hits: Hits) -> Patch:
    """A batch size or prefill step below 1 is refused, and so is a scheme that does not exist."""

    def check(*_: Any, **options: Any) -> None:
        given = {name: options.get(name) for name in _SIZES}
        wrong = [name for name, size in given.items() if size is not None and size < 1]
        if options.get("kv_quant_scheme", _SCHEMES[0]) not in _SCHEMES:
            wrong.append("kv_quant_scheme")
        hits.hit_if(wrong)
        if wrong:
            raise ValueError(f"{wrong[0]} is out of range")

    return before(compat.generation().BatchGenerator, "__init__", check)


@mend("xtc-threshold-of-all-rows")
def xtc_of_each_row(hits: Hits) -> Patch:
    """XTC looks for the least likely of the likely tokens in each row by itself."""

    def apply_xtc(right: Right, logits: mx.array, *args: Any, **options: Any) -> mx.array:
        hits.hit_if(len(logits) > 1)
        return mx.concatenate([right(row[None], *args, **options) for row in logits])

    return wrap(compat.part("sample_utils"), "apply_xtc", apply_xtc)


@mend("processors-after-reused-prefix")
def processors_see_the_prefix(hits: Hits) -> Patch:
    """A row that reuses a prefix has the prefix's tokens in the history of its processors."""

    def made(_: None, self: Any, *args: Any, **options: Any) -> None:
        del args
        found = options.get("apc_meta") or ()
        for row, meta in enumerate(found if self._token_context else ()):
            if meta is not None and meta.get("prefix_len", 0):
                hits.hit()
                self._token_context[row] = list(meta["full_input_ids"])

    return after(compat.generation().PromptProcessingBatch, "__init__", made)


@mend("logprob-of-the-token-replaced")
def forced_tokens_have_their_own_logprob(hits: Hits) -> Patch:
    """A token that a thinking budget forces is reported with its own logprob, if that is known."""
    sampled: dict[Any, int] = {}

    def step(right: Right, batch: Any) -> Any:
        found = right(batch)
        sampled.update(zip(batch.uids, batch._next_tokens.tolist(), strict=True))
        return found

    def found(responses: Any, batch: Any) -> Any:
        if any(batch.thinking_budget_criteria) and batch._next_top_idx is not None:
            chosen = mx.array([sampled[uid] for uid in batch.uids])
            likely = batch._next_top_idx == batch._next_tokens[:, None]  # [rows, vocab]
            own = mx.where(likely, batch._next_top_lp, 0.0).sum(axis=-1)
            # No other row's: a mend must not repair what is wrong besides.
            replaced = (batch._next_tokens != chosen) & likely.any(axis=-1)
            hits.hit_if(replaced.any().item())
            batch._next_lps = mx.where(replaced, own, batch._next_lps)
        return responses

    batch = compat.generation().GenerationBatch
    return together(wrap(batch, "_step", step), after(batch, "next", found))


@mend("drafted-tokens-without-logprob")
def what_is_not_computed_is_not_said(hits: Hits) -> Patch:
    """Nothing is said of the probability of tokens of a draft, as it is not computed."""

    def unsaid(responses: Any, _: Any) -> Any:
        for response in responses:
            hits.hit()
            response.token_logprob = None
        return responses

    return after(compat.generation().SpeculativeGenerationBatch, "next", unsaid)


# Columns of a batch of prompts for each token in them, at most.
_PADDED = 1.25


@mend("prompts-padded-to-the-longest")
def prompts_of_a_batch_are_alike(hits: Hits) -> Patch:
    """Only prompts of about one length are prefilled together; the others come next."""
    ar: Any = part("generate.ar")

    def admit(right: Right, generator: Any, **options: Any) -> Any:
        waiting = generator._unprocessed_sequences
        count = min(generator.prefill_batch_size, len(waiting))
        lengths = [len(sequence[1]) for sequence in waiting[:count]]
        fit = next((n for n in range(count, 1, -1) if _alike(lengths[:n])), min(count, 1))
        if generator._prompt_batch is not None or fit == count:
            return right(generator, **options)
        hits.hit()
        generator._unprocessed_sequences = waiting[:fit]
        try:
            return right(generator, **options)
        finally:
            generator._unprocessed_sequences = [
                *generator._unprocessed_sequences,
                *waiting[fit:],
            ]

    return wrap(ar.BatchGenerator, "_next", admit)


def _alike(lengths: list[int]) -> bool:
    return max(lengths) * len(lengths) <= _PADDED * sum(lengths)
