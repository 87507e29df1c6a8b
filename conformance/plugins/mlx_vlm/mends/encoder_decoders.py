"""Defects of models with an encoder for the whole prompt: Florence-2, Nemotron Parse."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


def _language(family: str) -> Any:
    return part(f"models.{family}.language")


@mend("florence2-in-batches", other_pieces=True)
def each_row_of_florence2_has_its_encoder(hits: Hits) -> Patch:
    """Each row is encoded whole, its states stay with its cache, and it has its own positions."""
    language = _language("florence2")
    step = threading.local()

    def encode(model: Any, embeddings: Any) -> Any:
        return model.model.encoder(inputs_embeds=embeddings * model.model.embed_scale)

    def start(model: Any, _: list[int]) -> list[int]:
        return [model.config.decoder_start_token_id]

    def decode(right: Right, self: Any, *args: Any, cache: Any = None, **options: Any) -> Any:
        offset = getattr(cache[0][0], "offset", None)
        step.table = self.embed_positions if isinstance(offset, mx.array) else None
        step.first = self.offset + offset + 0 if step.table is not None else None
        return right(self, *args, cache=cache, **options)

    def embed(right: Right, self: Any, ids: Any) -> Any:
        if self is getattr(step, "table", None):
            ids = mx.maximum(step.first[:, None] + mx.arange(ids.shape[1]), 0)
        return right(self, ids)

    return together(
        replace(language.LanguageModel, "no_chunked_prefill", True),
        wrap(language.Florence2Decoder, "__call__", decode),
        wrap(language.nn.Embedding, "__call__", embed),
        _encoders_of_rows(hits, language.LanguageModel, encode, start),
        _states_are_no_keys_of_the_sequence(language.Florence2Attention),
    )


@mend("nemotron-parse-in-batches", "nemotron-parse-in-batches-invalid", other_pieces=True)
def each_row_of_nemotron_parse_has_its_image(hits: Hits) -> Patch:
    """Each row's image stays with its cache, and masks are of the rows and of the images."""
    language = _language("nemotron_parse")
    call = threading.local()

    def encode(_: Any, embeddings: Any) -> Any:
        return embeddings

    def start(model: Any, prompt: list[int]) -> list[int]:
        config = model.config
        if len(prompt) == 1:
            return [config.decoder_start_token_id]
        if len(prompt) > 2 and prompt[-1] == config.eos_token_id:
            prompt = prompt[:-1]
        return prompt[1:] if len(prompt) > 1 and prompt[0] == config.bos_token_id else prompt

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        call.mask = options.get("attention_mask")
        return right(self, *args, **options)

    def decode(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        options["encoder_attention_mask"] = call.mask
        return right(self, *args, **options)

    def attend(right: Right, self: Any, hidden_states: Any, **options: Any) -> Any:
        cache: Any = options.get("cache")
        call.causal = None
        if self.is_causal and isinstance(getattr(cache, "offset", None), mx.array):
            call.causal = cache.make_mask(hidden_states.shape[1])  # before the cache counts on
        return right(self, hidden_states, **options)

    def mask(right: Right, *args: Any, **options: Any) -> Any:
        return right(*args, **options) if call.causal is None else call.causal

    return together(
        wrap(language.LanguageModel, "__call__", generate),
        wrap(language.NemotronParseDecoder, "__call__", decode),
        wrap(language.NemotronParseAttention, "__call__", attend),
        wrap(language, "create_attention_mask", mask),
        _encoders_of_rows(hits, language.LanguageModel, encode, start),
        _states_are_no_keys_of_the_sequence(language.NemotronParseAttention),
    )


def _encoders_of_rows(hits: Hits, model: Any, encode: Any, start: Any) -> Patch:
    """Rows are encoded one by one; caches of batches keep their states for all later steps.

    Args:
        encode: the states of one row, of its embeddings.
        start: what the decoder starts with, of a prompt.
    """
    generate = part("generate.ar")
    caches = part("models.cache")

    def merged(right: Right, kwargs: Any, input_ids: Any) -> Any:
        if not all(each and each.get("decoder_inputs_embeds") is not None for each in kwargs):
            return right(kwargs, input_ids)
        rows = [each["inputs_embeds"] for each in kwargs]
        lengths = [row.shape[1] for row in rows]
        more = [max(lengths) - length for length in lengths]
        padded = [mx.pad(row, [(0, 0), (0, n), (0, 0)]) for row, n in zip(rows, more, strict=True)]
        return mx.concatenate(padded), {"encoder_lengths": mx.array(lengths)}

    def made(right: Right, self: Any, *args: Any, **options: Any) -> None:
        right(self, *args, **options)
        first = self.prompt_cache[0]
        if isinstance(self.model, model) and isinstance(first[0], caches.SimpleKVCache):
            self.prompt_cache = generate._make_cache(self.model, [0])

    def called(right: Right, self: Any, inputs: Any = None, **options: Any) -> Any:
        cache: Any = options.get("cache")
        lengths: Any = options.pop("encoder_lengths", None)
        if lengths is not None:
            embeddings = options.pop("inputs_embeds")
            rows = [embeddings[i : i + 1, :n] for i, n in enumerate(lengths.tolist())]
            cache[0].encoded = [encode(self, row) for row in rows]
            options["decoder_input_ids"], inputs = started(self, inputs, cache), None
        if cache is None or not hasattr(cache[0], "encoded"):
            return right(self, inputs, **options)
        hits.hit()
        states, mask = _side_by_side(cache[0].encoded)
        return right(self, inputs, encoder_outputs=states, attention_mask=mask, **options)

    def started(self: Any, inputs: Any, cache: Any) -> mx.array:
        padding = cache[0][0].left_padding.tolist()
        prompts = [row[n:] for row, n in zip(inputs.tolist(), padding, strict=True)]
        first = [start(self, prompt) for prompt in prompts]
        padding = [max(map(len, first)) - len(row) for row in first]
        for layer in cache:
            for own in layer.caches:
                own.left_padding, own.offset = mx.array(padding), -mx.array(padding)
        return mx.array([[0] * n + row for row, n in zip(first, padding, strict=True)])

    def filtered(right: Right, self: Any, rows: Any) -> None:
        right(self, rows)
        if hasattr(self, "encoded"):
            self.encoded = [self.encoded[row] for row in rows.tolist()]

    def extended(right: Right, self: Any, other: Any) -> None:
        right(self, other)
        if hasattr(self, "encoded"):
            self.encoded = [*self.encoded, *other.encoded]

    return together(
        wrap(generate, "_merge_prefill_prompt_kwargs", merged),
        wrap(generate.PromptProcessingBatch, "__init__", made),
        wrap(model, "__call__", called),
        wrap(caches.CacheList, "filter", filtered),
        wrap(caches.CacheList, "extend", extended),
    )


def _states_are_no_keys_of_the_sequence(attention: Any) -> Patch:
    """Keys of a batch's encoders are made of their states, and no padded buffer of its cache."""

    def attend(right: Right, self: Any, hidden_states: Any, **options: Any) -> Any:
        states, cache = options.get("key_value_states"), options.get("cache")
        if states is not None and hasattr(cache, "left_padding"):
            options["cache"] = None
        return right(self, hidden_states, **options)

    return wrap(attention, "__call__", attend)


def _side_by_side(rows: list[mx.array]) -> tuple[mx.array, mx.array]:
    """The states of rows as one array, and the mask of columns that are not padding."""
    longest = max(row.shape[1] for row in rows)
    states = [mx.pad(row, [(0, 0), (0, longest - row.shape[1]), (0, 0)]) for row in rows]
    lengths = mx.array([row.shape[1] for row in rows])
    return mx.concatenate(states), (mx.arange(longest) < lengths[:, None])[:, None, None]
