"""Stand-ins for a model, its caches and kept prefixes, for prompts in pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

VOCAB = 12


class Next:
    """A model that predicts the next number after each token, for the requested last columns.

    Attributes:
        calls: the tokens and options of each call.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, dict[str, Any]]] = []

    def __call__(self, tokens: mx.array, **options: Any) -> Any:
        """Logits of the requested columns."""
        self.calls.append((np.array(tokens), options))
        near = -mx.abs(mx.arange(VOCAB) - 1 - tokens[..., None]).astype(mx.float32)
        return SimpleNamespace(logits=near[:, -options.get("logits_to_keep", 1) :])


class Entry:
    """A cache of rows that records where padding is."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.state = mx.zeros((1,))

    def prepare(self, **given: Any) -> None:
        """Record that rows end at different columns."""
        self.asked.append({name: list(value) for name, value in given.items()})

    def finalize(self) -> None:
        """Record that the rows have ended."""
        self.asked.append("end")

    def filter(self, _: mx.array) -> None:
        """Record that rows leave."""


class Keeping:
    """Keeps prefixes: manager and coordinator in one, which record their calls.

    Attributes:
        is_checkpoint: whether whole caches are kept, between pieces.
    """

    def __init__(self, is_checkpoint: bool) -> None:  # noqa: FBT001 - as the library's
        self.is_checkpoint = is_checkpoint
        self.asked: list[Any] = []

    def prepare_prefill(self, lengths: list[int], **options: Any) -> None:
        """Record that prompts begin."""
        said = {name: list(v) if isinstance(v, list) else v for name, v in options.items()}
        self.asked.append(("prefill", list(lengths), said))

    def observe_cache(self, _: Any, tokens: int, *, batch_size: int) -> None:
        """Record that a piece was computed."""
        self.asked.append(("observe", tokens, batch_size))

    def store_checkpoint(
        self, tokens: list[int], _: Any, *, batch_idx: int, extra_hash: int
    ) -> bool:
        """Record that a row's cache is kept."""
        self.asked.append(("store", tokens, batch_idx, extra_hash))
        return True

    def commit(self, _: Any, tokens: list[int], **options: Any) -> None:
        """Record that a row's prompt is kept."""
        names = ("batch_idx", "extra_hash", "skip_first_n_tokens", "blocks_in_use")
        self.asked.append(("commit", tokens, *(options[name] for name in names)))

    def release(self, blocks: list[Any]) -> None:
        """Record that blocks are no longer held."""
        self.asked.append(("release", blocks))
