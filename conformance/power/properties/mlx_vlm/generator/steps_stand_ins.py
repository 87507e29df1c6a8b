"""Stand-ins for the parts of a step of mlx-vlm's generator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.patching import replace, together
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.generators import Stops

ar: Any = compat.part("generate.ar")

# The placeholder token of an image.
MEDIA = 77
QUANTIZED: dict[str, Any] = {
    "kv_bits": 4,
    "kv_key_bits": 3,
    "kv_value_bits": 2,
    "kv_key_scheme": "of keys",
    "kv_value_scheme": "of values",
    "kv_group_size": 32,
    "kv_quant_scheme": "of both",
    "quantized_kv_start": 7,
}
# The settings that a batch of prompts gets unchanged from the generator.
SETTINGS: dict[str, Any] = {
    **QUANTIZED,
    "draft_model": "drafter",
    "draft_kind": "kind",
    "draft_block_size": 6,
    "greedy_sampling": True,
    "prefill_step_size": 9,
}


@dataclass
class _Record:
    """Records the arguments with which batches of prompts were made and called.

    Attributes:
        pieces: the number of pieces of a prompt before its last one.
        drafts: whether rows draft.
    """

    pieces: int = 2
    drafts: bool = False
    made: list[dict[str, Any]] = field(default_factory=list)
    begun: list[Any] = field(default_factory=list)

    def make(self, **given: Any) -> _Prompts:
        """Make a batch of prompts, in place of the library's class."""
        self.made.append(given)
        return _Prompts(given["uids"], self.pieces, self)


@dataclass
class _Prompts:
    """Replaces a batch of prompts."""

    uids: list[int]
    left: int
    record: _Record
    seconds: int = 0
    total_prompt_tokens: int = 11

    def needs_processing(self) -> bool:
        return self.left > 0

    def prompt_step(self) -> int:
        self.left -= 1
        return 1

    def record_prompt_time(self, seconds: int) -> None:
        self.seconds += seconds

    def prompt_progress(self) -> list[str]:
        return [f"{self.uids} in {self.seconds}"]

    def generate(self, *given: Any, **options: Any) -> Any:
        self.record.begun.append((given, options))
        return _Rows(list(self.uids), self.record.drafts)


@dataclass
class _Rows:
    """Replaces a batch of decoding rows; ``joined`` counts the batches that joined it."""

    uids: list[int]
    is_speculative: bool
    joined: int = 0

    def __len__(self) -> int:
        return len(self.uids)

    def next(self) -> list[str]:
        return [f"token of {uid}" for uid in self.uids]

    def extend(self, other: _Rows) -> None:
        self.uids += other.uids
        self.joined += 1


class _Coordinator:
    """Replaces the coordinator of kept prefixes.

    Attributes:
        media: for each prompt looked up, the least prefix to look for, and for each prefix whether
            only text follows it, and whether it contains media.
    """

    def __init__(self, kept: Sequence[int]) -> None:
        self.kept = kept
        self.asked: list[Any] = []
        self.media: list[Any] = []

    def prepare_prefill(self, lengths: list[int], **options: Any) -> None:
        self.asked.append(("prefill", lengths, options))

    def lookup(self, ids: list[int], *, extra_hash: int, **given: Any) -> dict[str, Any] | None:
        prefixes = range(len(ids))
        text, media = given["suffix_is_text_only"], given["prefix_has_media"]
        asked = [*map(text, prefixes)], [*map(media, prefixes)]
        self.media.append((given["safe_lookup_min"], *asked))
        row = extra_hash - 40
        found = {"prefix_len": self.kept[row], "extra_hash": 70 + row, "matched_blocks": [row]}
        return found if self.kept[row] else None

    def merge_rows(self, picks: Any, prefixes: Any, **options: Any) -> tuple[Any, None]:
        self.asked.append(("rows", [bool(pick) for pick in picks], prefixes, options))
        return ["merged"], None

    def checkpoint_len(self, ids: list[int], media: set[int]) -> int:
        return len(ids) * 10 + sum(media)

    def checkpoint_lengths(self, ids: list[int], media: set[int]) -> list[int]:
        return [len(ids), len(ids) * 10 + sum(media)]


@contextmanager
def recorded(pieces: int = 2) -> Iterator[_Record]:
    """Inside the block, batches of prompts are recorded, and the clock ticks when it is read."""
    record, ticks = _Record(pieces), itertools.count()
    with together(
        # The library looks there for a different class.
        replace(import_module("mlx_vlm.generate"), "PromptProcessingBatch", record.make),
        replace(ar, "time", SimpleNamespace(perf_counter=ticks.__next__)),
        replace(
            ar, "kv_quant_from_legacy", lambda *given: SimpleNamespace(to_config=lambda: given)
        ),
    ):
        yield record


def made_generator(kept: Sequence[int] | None, **more: Any) -> Any:
    """A generator with these settings and numbers of kept tokens by row; ``None``: none kept."""
    model = SimpleNamespace(config=SimpleNamespace(image_token_id=MEDIA))
    processor = SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Stops()))
    given = {**SETTINGS, "prefill_batch_size": 3, "completion_batch_size": 6, **more}
    made = ar.BatchGenerator(model, processor, sampler=max, **given)
    if kept is not None:
        made.apc, made.apc_manager, made.apc_mode = _Coordinator(kept), "manager", "mode"
    return made


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
