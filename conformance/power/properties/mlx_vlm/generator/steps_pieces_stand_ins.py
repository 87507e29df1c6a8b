"""What stands for a model, for its caches and for kept prefixes, where prompts come in pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

VOCAB = 12


class Next:
    """A model that gives the number after each token; of a last piece only so many columns.

    Attributes:
        calls: tokens and options of each.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, dict[str, Any]]] = []

    def __call__(self, tokens: mx.array, **options: Any) -> Any:
        """Logits of the columns that are asked for."""
        self.calls.append((np.array(tokens), options))
        near = -mx.abs(mx.arange(VOCAB) - 1 - tokens[..., None]).astype(mx.float32)
        return SimpleNamespace(logits=near[:, -options.get("logits_to_keep", 1) :])


class Entry:
    """A cache of rows; it records where padding is."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.state = mx.zeros((1,))

    def prepare(self, **given: Any) -> None:
        """Rows end at other columns."""
        self.asked.append({name: list(value) for name, value in given.items()})

    def finalize(self) -> None:
        """They have ended."""
        self.asked.append("end")

    def filter(self, _: mx.array) -> None:
        """Rows leave."""


class Keeping:
    """What keeps prefixes: manager and coordinator in one, which record what is asked.

    Attributes:
        is_checkpoint: whether whole caches are kept, between pieces.
    """

    def __init__(self, is_checkpoint: bool) -> None:  # noqa: FBT001 - as the library's
        self.is_checkpoint = is_checkpoint
        self.asked: list[Any] = []

    def prepare_prefill(self, lengths: list[int], **options: Any) -> None:
        """Prompts begin."""
        said = {name: list(v) if isinstance(v, list) else v for name, v in options.items()}
        self.asked.append(("prefill", list(lengths), said))

    def observe_cache(self, _: Any, tokens: int, *, batch_size: int) -> None:
        """A piece was computed."""
        self.asked.append(("observe", tokens, batch_size))

    def store_checkpoint(
        self, tokens: list[int], _: Any, *, batch_idx: int, extra_hash: int
    ) -> bool:
        """The cache of a row is kept."""
        self.asked.append(("store", tokens, batch_idx, extra_hash))
        return True

    def commit(self, _: Any, tokens: list[int], **options: Any) -> None:
        """The prompt of a row is kept."""
        names = ("batch_idx", "extra_hash", "skip_first_n_tokens", "blocks_in_use")
        self.asked.append(("commit", tokens, *(options[name] for name in names)))

    def release(self, blocks: list[Any]) -> None:
        """Blocks are held no longer."""
        self.asked.append(("release", blocks))
