"""How mlx-vlm's ``BatchGenerator`` makes a batch of prompts, and how it calls the batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.patching import replace
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.steps_stand_ins import (
    MEDIA,
    SETTINGS,
    made_generator,
    recorded,
)

apc: Any = compat.part("apc")

_FILE = "mlx_vlm/generate/ar.py"
_KEY, _WIDTH = "_apc_semantic_hash", 3
# For each row: the tokens of its prompt, and how many of them are kept.
_LENGTHS, _KEPT = (4, 4, 6), (0, 2, 3)


def made_properties() -> list[Property]:
    """The properties of the arguments of batches of prompts."""
    names = (
        *("BatchGenerator.__init__", "BatchGenerator._next", "BatchGenerator._build_*"),
        *("BatchGenerator._extend_*", "BatchGenerator._*prompt_batch*", "BatchGenerator.stats"),
        *("BatchGenerator._apc_*", "_slice_sequence_*", "_pad_sequence_*", "_concat_prompt_*"),
    )
    return [
        Property("generator: what prompts are made with", _FILE, names, _made),
        Property("generator: what is asked of prompts", _FILE, names, _asked),
        Property("generator: prompts beside drafts", _FILE, names, _beside_drafts),
        Property("generator: prompts without embeddings", _FILE, names, _without_embeddings),
        Property("generator: where prefixes are looked for", _FILE, names, _looked_for),
    ]


def _inputs(row: int, *, three: bool) -> dict[str, Any]:
    """A prompt's inputs: by token, for the row, and shared by all rows."""
    length, draw = _LENGTHS[row], np.random.default_rng(row)

    def of(*shape: int) -> mx.array:
        return mx.array(draw.integers(1, 90, shape))

    return {
        "inputs_embeds": of(1, length, _WIDTH),
        "position_ids": of(3, 1, length) if three else of(1, length),
        "token_type_ids": of(1, length),
        "sizes": of(1, 2),
        "shared": f"of row {row}",
        _KEY: 40 + row,
    }


def _padded(array: mx.array, axis: int, cut: int, length: int, *, left: bool) -> np.ndarray:
    found = np.array(array)
    found = np.take(found, range(cut, found.shape[axis]), axis=axis)
    pad, missing = [(0, 0)] * found.ndim, length - found.shape[axis]
    pad[axis] = (missing, 0) if left else (0, missing)
    return np.pad(found, pad)


def _wanted(inputs: list[dict[str, Any]], kept: Sequence[int]) -> dict[str, Any]:
    """The arrays of all rows, aligned at the end or, with kept prefixes, at the beginning."""
    left = not any(kept)
    length = max(n - cut for n, cut in zip(_LENGTHS, kept, strict=True))
    found: dict[str, Any] = {"shared": "of row 0"}
    for name, axis in (("inputs_embeds", 1), ("position_ids", -1), ("token_type_ids", 1)):
        arrays = [
            _padded(one[name], axis, cut, length, left=left)
            for one, cut in zip(inputs, kept, strict=True)
        ]
        found[name] = np.concatenate(arrays, axis=arrays[0].ndim - 2 if axis == -1 else 0)
    found["sizes"] = np.concatenate([np.array(one["sizes"]) for one in inputs])
    return found


def _made() -> Iterator[str]:
    """Rows, arrays and settings; for rows with kept prefixes, only the part after these."""
    for kept, three in itertools.product((None, (0, 0, 0), _KEPT), (False, True)):
        with recorded() as record:
            generator = made_generator(kept)
            inputs = [_inputs(row, three=three) for row in range(3)]
            prompts = [[row + 1] * length for row, length in enumerate(_LENGTHS)]
            own = [[f"processor of {row}"] for row in range(3)]
            budgets = [f"budget of {row}" for row in range(3)]
            generator.insert(prompts, [5, 6, 7], inputs, own, budgets)
            generator.next()
            given = record.made[0]
        cuts = kept or (0, 0, 0)
        want = _wanted(inputs, cuts)
        arrays = {"inputs_embeds": given.pop("inputs_embeds"), **given.pop("prompt_kwargs")}
        for name in sorted({*arrays, *want}):
            if name not in arrays or name not in want:
                yield f"{name} is given to prompts only once"
            elif not np.array_equal(np.array(arrays[name]), np.array(want[name])):
                yield f"with {cuts} kept {name} is {np.array(arrays[name])}, not {want[name]}"
        said = {
            "model": generator.model,
            "uids": [0, 1, 2],
            "input_ids": [tokens[cut:] for tokens, cut in zip(prompts, cuts, strict=True)],
            "max_tokens": [5, 6, 7],
            "logits_processors": own,
            "thinking_budget_criteria": budgets,
            **SETTINGS,
            "apc_meta": None,
            "apc_manager": kept and "manager",
            "apc_coordinator": generator.apc,
            "apc_mode": kept and "mode",
        }
        if kept:
            said["apc_meta"] = [_meta(row, prompts[row], cuts) for row in range(3)]
        if any(cuts):
            rest = [n - cut for n, cut in zip(_LENGTHS, cuts, strict=True)]
            said |= {"suffix_lens": rest, "right_pad_per_row": [max(rest) - n for n in rest]}
            said |= {"warm_cache": ["merged"]}
        if given != said:
            off = {name for name in {*given, *said} if given.get(name, 0) != said.get(name, 0)}
            yield f"with {cuts} kept prompts are made with {[(n, given.get(n)) for n in off]}"
        if kept:
            yield from _coordinated(generator.apc.asked, cuts)


def _meta(row: int, tokens: list[int], cuts: Sequence[int]) -> dict[str, Any]:
    """The metadata of a row for its prefill."""
    return {
        "full_input_ids": tokens,
        "prefix_len": cuts[row],
        "extra_hash": 70 + row if cuts[row] else 40 + row,
        "apc_blocks": [row] if cuts[row] else [],
        "checkpoint_len": len(tokens) * 10 + MEDIA,
        "checkpoint_lengths": [len(tokens), len(tokens) * 10 + MEDIA],
    }


def _coordinated(asked: list[Any], cuts: Sequence[int]) -> Iterator[str]:
    names = ("kv_bits", "kv_quant_scheme", "kv_group_size", "kv_key_bits", "kv_value_bits")
    config = tuple(SETTINGS[name] for name in (*names, "kv_key_scheme", "kv_value_scheme"))
    want: list[Any] = [("prefill", list(_LENGTHS), {"prefill_step_size": 9})]
    if any(cuts):
        rows = [bool(cut) for cut in cuts]
        want.append(("rows", rows, list(cuts), {"kv_quant_config": config}))
    if asked != want:
        yield f"of kept prefixes {asked} is asked, not {want}"


def _asked() -> Iterator[str]:
    """All pieces, each timed; then tokens, with the settings of the generator."""
    for kept, pieces, scores in itertools.product((None, _KEPT), (0, 2), (False, True)):
        options = {"draft_model": None, "compute_logprobs": scores, "top_logprobs_k": 2}
        with recorded(pieces) as record:
            generator = made_generator(kept, **options)
            for _ in range(2):
                prompts = [[row + 1] * length for row, length in enumerate(_LENGTHS)]
                generator.insert(prompts, 5, [_inputs(row, three=False) for row in range(3)])
            got = [generator.next() for _ in range(2 * pieces + 3)]
        # The shortest ones first.
        waves: tuple[list[int], ...] = [0, 1, 3], [4, 2, 5]
        tokens = [[f"token of {uid}" for uid in rows] for rows in (waves[0], waves[0] + waves[1])]
        ended = [f"{rows} in {pieces + 1}" for rows in waves]
        want = [
            *[([], [])] * pieces,
            (ended[:1], []),
            *[([], tokens[0])] * pieces,
            (ended[1:], tokens[0]),
            ([], tokens[1]),
        ]
        if got != want:
            yield f"{pieces} pieces, {kept} kept: calls give {got}, not {want}"
        stops = generator.tokenizer.stopping_criteria
        wanted = ((max, stops), {"compute_logprobs": scores, "top_logprobs_k": 2})
        if record.begun != [wanted] * 2:
            yield f"tokens are asked for with {record.begun}"
        stats, seconds = generator.stats(), 2 * (pieces + 1)
        counted = stats.prompt_tokens, stats.prompt_time, stats.prompt_tps, stats.generation_tokens
        if counted != (22, seconds, 22 / seconds, 3 * (pieces + 1) + 6):
            yield f"{pieces} pieces, {kept} kept: {stats}"
        if generator._generation_batch.joined != 1 or generator.has_pending_prompts:
            yield "rows join others though there are none, or prompts are left"


def _beside_drafts() -> Iterator[str]:
    """No batch of prompts begins before all drafting rows have ended."""
    with recorded(0) as record:
        record.drafts = True
        generator = made_generator(None)
        for _ in range(2):
            inputs = [_inputs(row, three=False) for row in range(3)]
            generator.insert([[1] * length for length in _LENGTHS], 5, inputs)
        calls = [len(generator.next()[1]) for _ in range(3)]
        begun = len(record.begun)
        generator._generation_batch.uids.clear()
        calls += [len(generator.next()[1]) for _ in range(2)]
    if (calls, begun, len(record.begun)) != ([0, 3, 3, 0, 3], 1, 2):
        yield f"calls give {calls} tokens, {begun} of {len(record.begun)} batches are begun"


def _without_embeddings() -> Iterator[str]:
    """Prompts without embeddings are refused with a clear error, with and without prefixes."""
    for kept, wrong in itertools.product((None, _KEPT), ({}, {_KEY: 40}, None)):
        with recorded():
            generator = made_generator(kept)
            inputs = [wrong if row == 0 else _inputs(row, three=False) for row in range(3)]
            generator._apc_extra_hash = lambda given: given.get(_KEY, 40)
            generator.insert([[1] * length for length in _LENGTHS], 5, inputs)
            try:
                generator.next()
            except ValueError as error:
                if "inputs_embeds" not in str(error):
                    yield f"{wrong} is refused with {error}"
                continue
        yield f"{wrong} is taken"


def _looked_for() -> Iterator[str]:
    """A prefix ends after its prompt's last image; a prompt of one token has no prefix."""
    cases: tuple[tuple[list[int], int], ...] = (
        ([1, MEDIA, MEDIA, 2, 3], 2),
        ([MEDIA, 1, MEDIA], 2),
        ([MEDIA, 1], 0),
        ([1, 2], 0),
    )
    for tokens, least in cases:
        with recorded():
            generator = made_generator((0, 0, 0))
            inputs = {"inputs_embeds": mx.zeros((1, len(tokens), 1)), _KEY: 40}
            generator.insert([tokens] * 3, 5, [inputs] * 3)
            generator.next()
        text = [MEDIA not in tokens[n:] for n in range(len(tokens))]
        media = [MEDIA in tokens[:n] for n in range(len(tokens))]
        if generator.apc.media != [(least, text, media)] * 3:
            yield f"of {tokens} prefixes are looked for with {generator.apc.media[0]}"
    with recorded():
        generator = made_generator((0, 0, 0))
        del generator.model.config
        generator.insert([[1]] * 3, 5, [{"inputs_embeds": mx.zeros((1, 1, 1)), _KEY: 40}] * 3)
        generator.next()
    if generator.apc.media or generator._apc_media_token_ids() != set():
        yield f"of a single token {generator.apc.media} is looked for"
    salts: list[dict[str, Any]] = []
    with replace(apc, "semantic_extra_hash", lambda **given: salts.append(given)):
        generator._apc_extra_hash({})
    wanted = salts[0]["model"], getattr(salts[0]["processor"], "tokenizer", None)
    if wanted != (generator.model, generator.tokenizer):
        yield f"prefixes are kept by {salts[0]}"
    stats = generator.stats()
    times = stats.prompt_time, stats.prompt_tps, stats.generation_tokens
    if made_generator(None).stats().prompt_tps != 0 or times != (1, 11, 0):
        yield f"before tokens are there the counts are {stats}"
