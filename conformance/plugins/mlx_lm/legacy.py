"""Adapters for mlx-lm 0.28.0 to 0.31.3, which are older than the declared minimum of 0.32.0.

``conformance releases`` needs them: it runs old releases to find which one introduced or fixed a
defect.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache

from conformance.backend.cache_entries import arrays, leaves
from conformance.core.errors import Unsupported


def accepted(taker: Callable[..., Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """``wanted`` without the ``None`` values for which ``taker`` has no parameter.

    Raises:
        Unsupported: ``taker`` has no parameter for another value; the message names it.
    """
    taken = inspect.signature(taker).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return dict(wanted)
    lacking = [name for name, value in wanted.items() if name not in taken and value is not None]
    if lacking:
        what = getattr(taker, "__qualname__", repr(taker))
        raise Unsupported(f"this mlx-lm's {what} does not support {', '.join(lacking)}")
    return {name: value for name, value in wanted.items() if name in taken}


def state_machines(stops: Sequence[tuple[tuple[int, ...], ...]]) -> dict[str, Any]:
    """Stop sequences of each request as the argument of ``insert`` up to 0.31.3."""
    # `mlx_lm.generate` as an attribute is the function of that name.
    machine = importlib.import_module("mlx_lm.generate").SequenceStateMachine
    ends = [{"normal": [(list(s), None) for s in stop]} if stop else {} for stop in stops]
    return {"state_machines": [machine(end, initial="normal") for end in ends]}


def prompt_cache_class() -> Any:
    """The class that keeps sequences for the server; up to 0.31.1 it is the server's own.

    Raises:
        Unsupported: before 0.29 the server keeps no sequences.
    """
    made = getattr(importlib.import_module("mlx_lm.server"), "LRUPromptCache", None)
    if made is None:
        raise Unsupported("this mlx-lm's server does not support keeping prompts' caches")
    return made


def uncached(model: Any, inputs: mx.array) -> mx.array:
    """Logits ``[1, length, vocab]`` of a pass over ``inputs`` of shape ``[1, length]``.

    qwen3_next of 0.28.0 reads a state that it sets only with a cache; it gets a fresh cache.
    """
    try:
        logits: mx.array = model(inputs)
    except UnboundLocalError:
        logits = model(inputs, cache=make_prompt_cache(model))
    return logits


class WholePromptGenerator:
    """An old ``BatchGenerator`` under those names of 0.31.2 that ``compat`` reads.

    Arguments are passed on unchanged, except ``None`` for arguments that the release lacks.

    Raises:
        Unsupported: the release lacks an argument that is given.
    """

    _prompt_batch = SimpleNamespace(
        uids=(),
        tokens=(),
        max_tokens=(),
        samplers=(),
        logits_processors=(),
        stop_sequences=(),
        prompt_cache=(),
    )
    _currently_processing = ()

    def __init__(self, model: Any, **options: Any) -> None:
        if "prompt_checkpoint_callback" in inspect.signature(BatchGenerator).parameters:
            options["prompt_checkpoint_callback"] = self._keep
        self._inner: Any = BatchGenerator(model, **accepted(BatchGenerator, options))
        self._tokens: dict[int, list[int]] = {}
        self._kept: list[tuple[list[int], list[Any]]] = []

    @property
    def model(self) -> Any:
        """The generator's model."""
        return self._inner.model

    @property
    def prompt_cache_nbytes(self) -> int:
        """Bytes of all caches by the generator's own count; before 0.31, of their arrays."""
        if hasattr(self._inner, "prompt_cache_nbytes"):
            return int(self._inner.prompt_cache_nbytes)
        batch = self._inner.active_batch
        held = [entry[3] for entry in self._unprocessed_sequences]
        held += [batch.cache] if batch is not None else []
        found = (array for caches in held for leaf in leaves(caches) for array in arrays(leaf))
        return sum(int(array.nbytes) for array in found if array.ndim > 1)

    @property
    def _uid_count(self) -> int:
        return int(self._inner.uid_count)

    @property
    def _unprocessed_sequences(self) -> list[Any]:
        """The generator's queue; before 0.28.4 without a cache for each request."""
        return [
            entry if len(entry) > 3 else (*entry, []) for entry in self._inner.unprocessed_prompts
        ]

    @property
    def _generation_batch(self) -> SimpleNamespace:
        """The decoding rows: each list has one entry a row."""
        batch = self._inner.active_batch
        uids = list(batch.uids) if batch is not None else []
        return SimpleNamespace(
            uids=uids,
            prompt_cache=batch.cache if batch is not None else [],
            tokens=[self._tokens[uid] for uid in uids if uid in self._tokens],
            max_tokens=batch.max_tokens if batch is not None else [],
            samplers=getattr(batch, "samplers", []),
            logits_processors=getattr(batch, "logits_processors", []),
            stop_sequences=(),
            _num_tokens=batch.num_tokens if batch is not None else [],
        )

    def insert(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: Sequence[int] | None = None,
        *,
        all_tokens: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> list[int]:
        """Call the old ``insert``; ``all_tokens`` are kept here, because it does not keep them.

        Raises:
            Unsupported: a request has something that the old ``insert`` does not take.
        """
        before = [list(tokens) for tokens in all_tokens or [[]] * len(prompts)]
        given = accepted(self._inner.insert, options)
        uids = list(self._inner.insert([list(p) for p in prompts], max_tokens, **given))
        # Not a strict zip: an invalid call may insert some requests and drop others.
        for uid, earlier, prompt in zip(uids, before, prompts, strict=False):
            self._tokens[uid] = earlier + list(prompt)
        return uids

    def checkpoints(self) -> list[tuple[list[int], list[Any]]]:
        """Tokens and caches of prompts before their last token, since the previous call.

        Only in 0.31.0 and 0.31.1, whose server keeps them for each chat; otherwise empty.
        """
        taken, self._kept = self._kept, []
        return taken

    def _keep(self, prompts: Sequence[tuple[int, int, Any]]) -> None:
        """Called with each prompt's uid, the number of its remaining tokens, and its caches."""
        self._kept += [(self._tokens[uid][:-left], list(caches)) for uid, left, caches in prompts]

    def insert_segments(
        self, segments: Sequence[Sequence[Sequence[int]]], **options: Any
    ) -> list[int]:
        """Insert prompts of one piece each.

        Raises:
            Unsupported: a prompt has several pieces.
        """
        if any(len(pieces) > 1 for pieces in segments):
            raise Unsupported("this mlx-lm's BatchGenerator does not support prompts in pieces")
        # A prompt that is cached to its end has no tokens left: the library gets an empty one.
        return self.insert([pieces[0] if pieces else [] for pieces in segments], **options)

    def next(self) -> tuple[list[Any], list[Any]]:
        """The prompts that were prefilled, and the tokens that were generated."""
        queued = [entry[0] for entry in self._unprocessed_sequences]
        responses = [self._response(given) for given in self._inner.next()]
        left = {entry[0] for entry in self._unprocessed_sequences}
        answered = {response.uid: len(response.all_tokens) - 1 for response in responses}
        live = {uid: len(self._tokens[uid]) for uid in self._generation_batch.uids}
        done = {uid: answered.get(uid, live.get(uid, 0)) for uid in queued if uid not in left}
        return [
            SimpleNamespace(uid=uid, progress=(n, n), end_of_segment=True, end_of_prompt=True)
            for uid, n in done.items()
        ], responses

    def remove(self, uids: Sequence[int]) -> None:
        """Call the old ``remove``.

        Raises:
            Unsupported: before 0.28.4 there is no ``remove``.
        """
        if not hasattr(self._inner, "remove"):
            raise Unsupported("this mlx-lm's BatchGenerator does not support removing requests")
        self._inner.remove(list(uids))

    def extract_cache(self, uids: Sequence[int]) -> dict[int, tuple[list[Any], list[int]]]:
        """Cache and tokens of decoding rows; for a queued request, the cache it came with.

        Raises:
            Unsupported: before 0.28.4 no cache can be taken out.
        """
        batch = self._inner.active_batch
        if batch is not None and not hasattr(batch, "extract_cache"):
            raise Unsupported("this mlx-lm's BatchGenerator does not support extracting caches")
        rows = {uid: row for row, uid in enumerate(batch.uids)} if batch is not None else {}
        waiting = {entry[0]: entry[3] for entry in self._unprocessed_sequences}
        return {
            uid: (batch.extract_cache(rows[uid]), self._tokens[uid])
            if uid in rows
            else (waiting[uid], [])
            for uid in uids
        }

    def close(self) -> None:
        """Call the old ``close``, which exists since 0.29."""
        if hasattr(self._inner, "close"):
            self._inner.close()

    def _response(self, given: Any) -> SimpleNamespace:
        tokens = self._tokens.setdefault(given.uid, [])
        tokens.append(int(given.token))
        return SimpleNamespace(
            uid=given.uid,
            token=given.token,
            logprobs=given.logprobs,
            finish_reason=given.finish_reason,
            prompt_cache=getattr(given, "prompt_cache", None),
            all_tokens=tokens,
        )
