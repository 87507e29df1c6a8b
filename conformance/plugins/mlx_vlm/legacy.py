"""Adapters for mlx-vlm 0.4 and 0.5, which are older than the declared minimum of 0.7.10.

``conformance releases`` needs them: it runs old releases to find which one introduced or fixed a
defect.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.core.errors import Unsupported
from conformance.plugins.mlx_vlm.inputs import Inputs, embed
from conformance.plugins.mlx_vlm.model import LoadedModel


def embed_together(loaded: LoadedModel, many: Sequence[Inputs]) -> dict[str, Any]:
    """The keyword arguments for several prompts at once, padded on the left as in 0.4.

    Source: ``mlx_vlm.generate._generate_batch`` of 0.4.4.
    """
    longest = max(made.input_ids.shape[1] for made in many)
    pads = [[(0, 0), (longest - made.input_ids.shape[1], 0)] for made in many]
    pixels = [made.pixel_values for made in many if made.pixel_values is not None]
    names = dict.fromkeys(name for made in many for name in made.extra)
    extra = {
        name: mx.concatenate([made.extra[name] for made in many if name in made.extra])
        for name in names
    }
    whole = Inputs(
        mx.concatenate([mx.pad(m.input_ids, p) for m, p in zip(many, pads, strict=True)]),
        mx.concatenate(pixels) if pixels else None,
        mx.concatenate([mx.pad(m.attention_mask, p) for m, p in zip(many, pads, strict=True)]),
        extra,
    )
    return embed(loaded, whole)


# The message of transformers if it cannot make a processor, with what is missing.
_MISSING = {
    "torchvision": "torchvision",
    "Unrecognized image processor": "image_processor_type in its config",
}


def missing(error: ValueError) -> str | None:
    """What transformers says is missing, if ``error`` is its refusal to make a processor."""
    return next((name for text, name in _MISSING.items() if text in str(error)), None)


def logits_processor_maker() -> Any:
    """mlx-lm's function that makes logits processors."""
    return importlib.import_module("mlx_lm.sample_utils").make_logits_processors


_MARK = object()


class WholePromptGenerator:
    """An old ``BatchGenerator`` under those names of 0.5 that ``compat`` reads.

    Args:
        model: the language model.
        processor: the parts of a processor that the generator needs.
        embed: makes the keyword arguments for the inputs of several requests at once.
        sampler: maps logprobs ``[rows, vocab]`` to tokens ``[rows]``.
        top_logprobs_k: the size of the vocabulary; the generator always returns all logprobs.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        completion_batch_size: int,
        prefill_batch_size: int,
        prefill_step_size: int,
        top_logprobs_k: int,
        embed: Callable[[Sequence[Any]], dict[str, Any]],
        sampler: Callable[[mx.array], mx.array] | None = None,
    ) -> None:
        del top_logprobs_k
        self._sampler = sampler or (lambda logprobs: mx.argmax(logprobs, axis=-1))
        self._embed = embed
        self._inner: Any = importlib.import_module("mlx_vlm.generate").BatchGenerator(
            model,
            processor,
            sampler=self._sample,
            completion_batch_size=completion_batch_size,
            prefill_batch_size=prefill_batch_size,
            prefill_step_size=prefill_step_size,
        )
        # The generator gets requests when it can prefill them, because it cannot queue embeddings,
        # so uids are counted here.
        self._waiting: list[tuple[int, list[int], int, Any]] = []
        self._uids: dict[int, int] = {}
        self._prefilled: list[int] = []
        self.uid_count = 0

    @property
    def _unprocessed_sequences(self) -> list[Any]:
        return self._waiting

    @property
    def _prompt_batch(self) -> SimpleNamespace | None:
        """The rows of the prefill, while their first token is sampled."""
        if not self._prefilled:
            return None
        return SimpleNamespace(uids=self._prefilled, prompt_cache=[], max_tokens=[])

    @property
    def _generation_batch(self) -> SimpleNamespace:
        batch = self._inner.active_batch
        return SimpleNamespace(
            uids=[self._uids[uid] for uid in batch.uids] if batch is not None else [],
            prompt_cache=batch.cache if batch is not None else [],
            max_tokens=batch.max_tokens if batch is not None else [],
            _num_tokens=batch.num_tokens if batch is not None else [],
            _current_tokens=_MARK,
            _next_tokens=None if self._prefilled else _MARK,
        )

    def insert(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        prompt_kwargs: Sequence[dict[str, Any]],
        **options: Any,
    ) -> list[int]:
        """Queue requests; ``prompt_kwargs`` has the ``inputs`` of each, not yet embedded.

        Raises:
            Unsupported: a request has logits processors.
        """
        if options:
            names = ", ".join(options)
            raise Unsupported(f"this mlx-vlm's BatchGenerator does not support {names}")
        uids = []
        for prompt, given in zip(prompts, prompt_kwargs, strict=True):
            self._waiting.append((self.uid_count, list(prompt), max_tokens, given["inputs"]))
            uids.append(self.uid_count)
            self.uid_count += 1
        self._waiting.sort(key=lambda entry: len(entry[1]))
        return uids

    def next(self) -> tuple[list[Any], list[Any]]:
        """Call the old ``next``, with the embeddings of the prompts that it prefills."""
        active = self._inner.active_batch
        free = self._inner.completion_batch_size - (len(active) if active is not None else 0)
        size = self._inner.prefill_batch_size
        group = self._waiting[:size] if free >= size else []
        if active is None and not group:
            return [], []
        given: dict[str, Any] = {}
        if group:
            self._waiting = self._waiting[size:]
            prompts = [prompt for _, prompt, _, _ in group]
            own = self._inner.insert(prompts, [most for _, _, most, _ in group])
            self._prefilled = [uid for uid, *_ in group]
            self._uids |= dict(zip(own, self._prefilled, strict=True))
            given = self._embed([inputs for *_, inputs in group])
        return [], [self._response(response) for response in self._inner.next(**given)]

    def remove(self, uid: int) -> bool:
        """Refuse: the old generator has no such method.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(f"this mlx-vlm's BatchGenerator does not support removing {uid}")

    def close(self) -> None:
        """Do nothing: the generator holds nothing that has to be freed."""

    def _sample(self, logprobs: mx.array) -> mx.array:
        """Sample for the prefill's rows in the first call after it, else for decoding rows."""
        sampled = self._sampler(logprobs)
        self._prefilled = []
        return sampled

    def _response(self, given: Any) -> SimpleNamespace:
        row = given.logprobs.astype(mx.float32).tolist()  # [vocab]
        return SimpleNamespace(
            uid=self._uids[given.uid],
            token=given.token,
            finish_reason=given.finish_reason,
            token_logprob=row[int(given.token)],
            top_logprobs=list(enumerate(row)),
        )
