"""Prompts in pieces, also where a call fails: what is stored, sampled and reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.patching import replace
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.steps_stand_ins import (
    VOCAB,
    Entry,
    Keeping,
    Next,
)

ar: Any = compat.part("generate.ar")

_FILE, _CASES, _WIDTH = "mlx_vlm/generate/ar.py", 24, 2


def piece_properties() -> list[Property]:
    """The property of ``PromptProcessingBatch``."""
    names = ("PromptProcessingBatch.*", "_*_sequence_aligned_*", "_prompt_kwarg_*")
    return [Property("generator: prompts in pieces", _FILE, names, _pieces)]


@dataclass
class Row:
    """A prompt with ``prefix`` kept tokens, and the lengths at which to keep a cache."""

    number: int
    tokens: list[int]
    prefix: int
    ends: list[int]
    kept: list[int] = field(default_factory=list)

    @property
    def rest(self) -> int:
        """The number of tokens to compute."""
        return len(self.tokens) - self.prefix

    def pending(self) -> int | None:
        """The number of tokens after which the next cache is kept."""
        last = max([self.prefix, *self.kept])
        return next((n for n in self.ends if n > last), None)


@dataclass
class Expected:
    """Rows that begin together or, without kept prefixes, end together.

    Attributes:
        checkpoints: whether caches are kept between pieces.
        done: the number of computed columns.
    """

    rows: list[Row]
    step: int | None
    checkpoints: bool
    done: int = 0

    def __post_init__(self) -> None:
        self.columns = max(row.rest for row in self.rows)
        self.together = any(row.prefix for row in self.rows)

    def first(self, row: Row) -> int:
        """The column of a row's first token."""
        return 0 if self.together else self.columns - row.rest

    def piece(self) -> int:
        """The columns of the next piece; 0 if only the last column is left."""
        left = self.columns - self.done
        cuts = []
        for row in self.rows if self.checkpoints else []:
            end = row.pending()
            if end is not None:
                cuts.append(self.first(row) + end - row.prefix - self.done)
        cuts = [n for n in cuts if 0 < n < left]
        if left <= 1 or (self.step is None and not cuts):
            return 0
        if self.together:
            cuts += [row.rest - self.done for row in self.rows if row.rest > self.done]
        return min(self.step or left, left - 1, *cuts)

    def computed(self, columns: int) -> list[tuple[int, int]]:
        """The rows whose caches are kept after a piece, and their numbers of tokens."""
        self.done += columns
        found = []
        for place, row in enumerate(self.rows):
            done = min(max(self.done - self.first(row), 0), row.rest)
            if self.checkpoints and row.prefix + done == row.pending():
                row.kept.append(row.prefix + done)
                found.append((place, row.prefix + done))
        return found


def _drawn(seed: int) -> Expected:
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(int(draw.integers(1, 5))):
        tokens = draw.integers(0, VOCAB - 1, int(draw.integers(2, 11))).tolist()
        prefix = int(draw.integers(0, len(tokens))) if seed % 2 else 0
        ends = sorted({int(n) for n in draw.integers(1, len(tokens), int(draw.integers(0, 4)))})
        rows.append(Row(number, tokens, prefix, ends))
    step = int(draw.integers(1, 5)) if seed % 3 else None
    return Expected(rows, step, checkpoints=seed % 4 < 3)


def _arrays(expected: Expected) -> dict[str, np.ndarray]:
    """The inputs that hold each token's row and number."""
    shape = len(expected.rows), expected.columns
    found = {"ids": np.zeros(shape, int), "types": np.zeros(shape, int)}
    for place, row in enumerate(expected.rows):
        at = slice(expected.first(row), expected.first(row) + row.rest)
        found["ids"][place, at] = row.tokens[row.prefix :]
        found["types"][place, at] = 100 * row.number + np.arange(row.prefix, len(row.tokens))
    return found


def made(expected: Expected, keeping: Keeping, entries: list[Entry], model: Next) -> Any:
    """The library's batch of these rows."""
    arrays, rows = _arrays(expected), expected.rows
    types = mx.array(arrays["types"])
    more: dict[str, Any] = {}
    if expected.together:
        more["right_pad_per_row"] = [expected.columns - row.rest for row in rows]
        more["suffix_lens"] = [row.rest for row in rows]
    return ar.PromptProcessingBatch(
        model,
        [row.number for row in rows],
        [row.tokens[row.prefix :] for row in rows],
        [20 + row.number for row in rows],
        mx.repeat(types[..., None], _WIDTH, axis=-1),
        {
            "token_type_ids": types,
            "position_ids": mx.stack([types] * 3),
            "rope_deltas": mx.array([[row.number] for row in rows]),
            "scalar": 7,
        },
        prefill_step_size=expected.step,
        warm_cache=entries,
        apc_meta=[
            {
                "full_input_ids": row.tokens,
                "prefix_len": row.prefix,
                "extra_hash": 30 + row.number,
                "apc_blocks": [f"block of {row.number}"],
                "checkpoint_lengths": row.ends,
            }
            for row in rows
        ],
        apc_manager=keeping,
        apc_coordinator=keeping,
        apc_mode="exact" if expected.checkpoints else "block",
        **more,
    )


def _pieces() -> Iterator[str]:
    """Pieces end where a cache is kept or a row ends; a row may leave between them."""
    for seed in range(_CASES):
        expected = _drawn(seed)
        keeping, entries, model = Keeping(expected.checkpoints), [Entry(), Entry()], Next()
        batch = made(expected, keeping, entries, model)
        rows = list(expected.rows)
        begun = {
            "prefix_lengths": [row.prefix for row in rows],
            "prefill_step_size": expected.step,
        }
        want: list[Any] = [("prefill", [len(row.tokens) for row in rows], begun)]
        arrays = _arrays(expected)
        padding = [expected.columns - row.rest for row in rows]
        uneven = expected.together and any(padding)
        lengths = [row.rest for row in rows]
        prepared = [{"right_padding": padding, "lengths": lengths}] if uneven else []
        gone = 1 + seed % 3 if seed % 5 == 4 and len(rows) > 1 else None
        for turn in range(expected.columns + 1):
            if turn == gone and expected.piece():
                left = rows.pop(seed % len(rows))
                place = batch.uids.index(left.number)
                batch.remove(left.number)
                expected.rows.remove(left)
                arrays = {name: np.delete(array, place, 0) for name, array in arrays.items()}
                want.append(("release", [f"block of {left.number}"]))
            count = expected.piece()
            if batch.needs_processing() != bool(count):
                yield f"case {seed}: after {expected.done} columns {count} are to come"
                return
            if not count:
                break
            begin = expected.done
            if (got := batch.prompt_step()) != count:
                yield f"case {seed}: after {begin} columns a piece has {got}, not {count}"
                return
            yield from _inputs_off(model, arrays, slice(begin, begin + count), rows)
            kept = expected.computed(count)
            seen = max(row.prefix for row in rows) + expected.done
            want.append(("observe", seen, len(rows)))
            want += [("store", rows[at].tokens[:n], at, 30 + rows[at].number) for at, n in kept]
        yield from _ended(expected, batch, model, arrays)
        want += [_last(expected, place, row) for place, row in enumerate(rows)]
        if keeping.asked != want:
            yield f"case {seed}: of kept caches {keeping.asked} is asked, not {want}"
        ends = ["end"] if uneven and any(expected.columns - row.rest for row in rows) else []
        if any(entry.asked != [*prepared, *ends] for entry in entries):
            yield f"case {seed}: of the caches {entries[0].asked} is asked, not {prepared}, {ends}"


def _last(expected: Expected, place: int, row: Row) -> tuple[Any, ...]:
    """The calls for a row whose prompt ends; a row with a kept cache needs no other."""
    blocks = [f"block of {row.number}"]
    if expected.checkpoints and (row.kept or row.prefix):
        return ("release", blocks)
    return ("commit", row.tokens, place, 30 + row.number, row.prefix, blocks)


def _inputs_off(
    model: Next, arrays: dict[str, np.ndarray], at: slice, rows: list[Row]
) -> Iterator[str]:
    ids, options = model.calls[-1]
    types = arrays["types"][:, at]
    embeds = np.repeat(types[..., None], _WIDTH, axis=-1)
    wanted = {
        "inputs_embeds": embeds,
        "token_type_ids": types,
        "position_ids": np.stack([types] * 3),
        "rope_deltas": np.array([[row.number] for row in rows]),
    }
    if not np.array_equal(ids, arrays["ids"][:, at]):
        yield f"columns {at} have the tokens {ids}"
    for name, array in wanted.items():
        if not np.array_equal(np.array(options[name]), array):
            yield f"columns {at} have {name} {options[name]}, not {array}"
    if options["scalar"] != 7:
        yield f"what all rows share is {options['scalar']}"


def _ended(
    expected: Expected, batch: Any, model: Next, arrays: dict[str, np.ndarray]
) -> Iterator[str]:
    """The token after the last token of each row, in whatever column that was."""
    rows, begin = expected.rows, expected.done
    batch.record_prompt_time(2)
    batch.record_prompt_time(-1)
    progress = [
        (one.uid, one.prompt_tokens, one.cached_tokens, one.prompt_tps)
        for one in batch.prompt_progress()
    ]
    want = [(row.number, len(row.tokens), row.prefix, len(row.tokens) / 2) for row in rows]
    if progress != want or batch.total_prompt_tokens != sum(row.rest for row in rows):
        yield f"the progress is {progress}, not {want}, of {batch.total_prompt_tokens} tokens"
    found = batch.generate(lambda scores: mx.argmax(scores, axis=-1), "stop", top_logprobs_k=2)
    yield from _inputs_off(model, arrays, slice(begin, None), rows)
    keep = 1
    if expected.together:
        keep += max([expected.columns - row.rest for row in rows if row.rest > begin], default=0)
    if model.calls[-1][1]["logits_to_keep"] != keep:
        yield f"logits of {model.calls[-1][1]['logits_to_keep']} columns are kept, not of {keep}"
    tokens = [row.tokens[-1] + 1 for row in rows]
    got = found.uids, found.max_tokens, found._next_tokens.tolist(), found._rope_deltas.tolist()
    numbers = [row.number for row in rows]
    if got != (numbers, [20 + n for n in numbers], tokens, [[n] for n in numbers]):
        yield f"rows {got} decode, not {numbers} with {tokens}"
    if not found.compute_logprobs or found._next_lps.shape != (len(rows),):
        yield f"by default the logprobs {found._next_lps} of first tokens are known"
    if found._next_top_idx[:, 0].tolist() != tokens or batch.uids or batch.prompt_cache:
        yield f"the best tokens are {found._next_top_idx}, or {batch.uids} are left"


def failure_properties() -> list[Property]:
    """The properties of ``PromptProcessingBatch``."""
    file, names = "mlx_vlm/generate/ar.py", ("PromptProcessingBatch.*",)
    return [
        Property("generator: prompts that are not kept", file, names, _not_kept),
        Property("generator: caches that are not padded", file, names, _not_padded),
    ]


class _Failing(Keeping):
    """Keeps prefixes, except of its second row."""

    def commit(self, _: Any, tokens: list[int], **options: Any) -> None:
        """Keep the prompt of a row, or fail."""
        super().commit(_, tokens, **options)
        if options["batch_idx"] == 1:
            raise RuntimeError("no room")


def _failing_rows() -> list[Row]:
    return [Row(n, [n, 3, 4, 5][: 4 - n], 1, []) for n in range(3)]


def _failing_blocks(*rows: int) -> list[Any]:
    return [("release", [f"block of {row}"]) for row in rows]


def _not_kept() -> Iterator[str]:
    """The rows decode anyway, and no longer hold blocks."""
    keeping = _Failing(is_checkpoint=False)
    batch = made(Expected(_failing_rows(), None, checkpoints=False), keeping, [Entry()], Next())
    with replace(ar.logger, "disabled", True):
        rows = batch.generate(lambda scores: mx.argmax(scores, axis=-1), "stop")
    if rows._next_tokens.tolist() != [6, 5, 4] or rows._next_top_idx is not None:
        yield f"rows that are not kept begin with {rows._next_tokens}"
    asked = [one for one in keeping.asked if one[0] in ("commit", "release")]
    if [one[0] for one in asked[:2]] != ["commit"] * 2 or asked[2:] != _failing_blocks(0, 1, 2):
        yield f"of rows that are not kept {asked} is asked"


def _not_padded() -> Iterator[str]:
    """The batch is refused with the name of the missing method, and no blocks stay held."""
    for missing in ("prepare", "finalize"):
        keeping, entry = Keeping(is_checkpoint=False), Entry()
        setattr(entry, missing, None)
        try:
            batch = made(
                Expected(_failing_rows(), None, checkpoints=False), keeping, [entry], Next()
            )
            batch.generate(lambda scores: mx.argmax(scores, axis=-1), "stop")
        except RuntimeError as error:
            if missing not in str(error):
                yield f"caches without {missing} are refused with {error}"
        else:
            yield f"caches without {missing} are taken"
        if [one for one in keeping.asked if one[0] == "release"] != _failing_blocks(0, 1, 2):
            yield f"without {missing} blocks are held: {keeping.asked}"
