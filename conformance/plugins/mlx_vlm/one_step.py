"""The batch generator of mlx-vlm 0.4, seen as the later ones are.

Its one user, ``batch_generate``, gives it prompts that were padded and embedded together, and so
does this. It brings prompts in whole, within one ``next()``: nothing of it is ever seen in prefill.
It cannot remove a request, and knows neither processors nor quantized caches.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.core.errors import Unsupported

_MARK = object()


class OneStepGenerator:
    """A ``BatchGenerator`` of that time under the names of 0.5, as far as ``compat`` reads them.

    Args:
        model: the language model.
        processor: what its generator needs of one.
        embed: makes the keyword arguments for several requests' inputs at once.
        sampler: ``[rows, vocab]`` logprobs in, ``[rows]`` tokens out.
        top_logprobs_k: only as many as the vocabulary has: it gives them all.
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
        # Requests are given to the generator when it can bring them in: their embeddings can't wait
        # there. So it counts uids of its own.
        self._waiting: list[tuple[int, list[int], int, Any]] = []
        self._uids: dict[int, int] = {}
        self._entering: list[int] = []
        self.uid_count = 0

    @property
    def _unprocessed_sequences(self) -> list[Any]:
        return self._waiting

    @property
    def _prompt_batch(self) -> SimpleNamespace | None:
        """The rows that come in, while their first token is being drawn."""
        if not self._entering:
            return None
        return SimpleNamespace(uids=self._entering, prompt_cache=[], max_tokens=[])

    @property
    def _generation_batch(self) -> SimpleNamespace:
        batch = self._inner.active_batch
        return SimpleNamespace(
            uids=[self._uids[uid] for uid in batch.uids] if batch is not None else [],
            prompt_cache=batch.cache if batch is not None else [],
            max_tokens=batch.max_tokens if batch is not None else [],
            _num_tokens=batch.num_tokens if batch is not None else [],
            _current_tokens=_MARK,
            _next_tokens=None if self._entering else _MARK,
        )

    def insert(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int,
        prompt_kwargs: Sequence[dict[str, Any]],
        **options: Any,
    ) -> list[int]:
        """Take requests; ``prompt_kwargs`` has each one's ``inputs``, not yet embedded.

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
        """Its own ``next``, with the embeddings of those that it brings in."""
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
            self._entering = [uid for uid, *_ in group]
            self._uids |= dict(zip(own, self._entering, strict=True))
            given = self._embed([inputs for *_, inputs in group])
        return [], [self._response(response) for response in self._inner.next(**given)]

    def remove(self, uid: int) -> bool:
        """It has no such method.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(f"this mlx-vlm's BatchGenerator does not support removing {uid}")

    def close(self) -> None:
        """It holds nothing that has to be given back."""

    def _sample(self, logprobs: mx.array) -> mx.array:
        """The first call after rows came in is for them, every other for those that decode."""
        drawn = self._sampler(logprobs)
        self._entering = []
        return drawn

    def _response(self, given: Any) -> SimpleNamespace:
        row = given.logprobs.astype(mx.float32).tolist()  # [vocab]
        return SimpleNamespace(
            uid=self._uids[given.uid],
            token=given.token,
            finish_reason=given.finish_reason,
            token_logprob=row[int(given.token)],
            top_logprobs=list(enumerate(row)),
        )
