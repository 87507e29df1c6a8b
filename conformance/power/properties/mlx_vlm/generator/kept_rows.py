"""mlx-vlm's ``BatchGenerator`` with kept prefixes: rows whose prompt is partly kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from conformance.backend.expected_rows import Asked, Biased
from conformance.backend.stub_model import EMBEDDINGS, SIZE, VOCAB
from conformance.core.engine_options import PrefixCaching
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.prefix_caching import make_manager
from conformance.power.properties.mlx_vlm.generator.expected_steps import (
    ExpectedSteps,
    Kept,
    Limits,
)
from conformance.power.properties.mlx_vlm.generator.generators import (
    Way,
    expect,
    insert,
    make,
    off,
)

_FILES = "mlx_vlm/*"
_BLOCK, _LEAST, _WAVES, _MOST_STEPS = 4, 3, 3, 120
# Windows of layers whose caches can be cut into blocks, and of layers with whole kept caches.
_BLOCKS, _WHOLE = (None, None), (None, 9)


def kept_row_properties() -> list[Property]:
    """The properties of rows with kept prefixes."""
    names = (
        *("BatchGenerator.*", "PromptProcessingBatch.*", "APCCoordinator.*"),
        *("_slice_sequence_*", "_pad_sequence_*", "_prompt_kwarg_*", "_concat_prompt_*"),
    )
    found = [
        Property(f"generator: kept {what}", _FILES, names, partial(_waves, windows))
        for what, windows in (("blocks", _BLOCKS), ("caches", _WHOLE))
    ]
    processed = partial(_waves, _BLOCKS, processors=True)
    return [*found, Property("generator: processors of kept rows", _FILES, names, processed)]


def families(seed: int, wave: int, *, processors: bool) -> list[Asked]:
    """Prompts of which some continue prompts of earlier waves, and some are new."""
    stems = np.random.default_rng(seed).integers(0, VOCAB, (3, 40))
    draw = np.random.default_rng((seed, wave))
    found = []
    for number in range(4):
        stem = stems[int(draw.integers(3))][: int(draw.integers(3, 9 + 6 * wave))].tolist()
        tokens = [*stem, *draw.integers(0, VOCAB, int(draw.integers(1, 4))).tolist()]
        key = int(draw.integers(0, 2))
        if wave and number < 2:
            old = families(seed, wave - 1, processors=processors)[0]
            tokens, key = [*old.tokens, *tokens[: number * 3]], old.key
        one = Asked(tokens, int(draw.integers(1, 6)), key=key)
        if seed % 2:
            one.positions, one.delta = np.arange(len(tokens)) * 2, 3
        # Prompts with the same key have the same other content.
        more = np.random.default_rng(one.key).normal(0, 0.3, (60, SIZE)).astype("f")
        one.hidden = EMBEDDINGS[tokens] + one.key * more[: len(tokens)]
        if processors and number % 2:
            one.processors = [Biased(number)]
        found.append(one)
    return found


def _waves(windows: Sequence[int | None], *, processors: bool = False) -> Iterator[str]:
    """Each row gives the same answer as alone, and computes only the unkept part of its prompt."""
    cases = (
        (Limits(4, 2, 3), None),
        (Limits(6, 4, None), 2),
        (Limits(4, 4, 1), None),
        (Limits(4, 4, 3), 3),
        (Limits(6, 4, None), None),
    )
    for seed, (limit, gone) in enumerate(cases):
        way = Way(limit, windows=tuple(windows), top=seed % 2)
        manager = make_manager(PrefixCaching(blocks=200, block_size=_BLOCK, snapshots=100))
        manager.exact_cache_min_tokens = _LEAST
        generator, model = make(way, apc_manager=manager)
        kept = Kept(_BLOCK, _LEAST, checkpoints=windows != _BLOCKS)
        expected = ExpectedSteps(limit, kept)
        for wave in range(_WAVES):
            some = families(seed, wave, processors=processors)
            numbers = insert(generator, some)
            answers = zip(some, expect(way, some), strict=True)
            expected.insert(dict(zip(numbers, answers, strict=True)))
            for turn in itertools.count():
                if turn == gone:
                    generator.remove(numbers[0])
                    expected.remove(numbers[0])
                if not generator.has_work or turn > _MOST_STEPS:
                    break
                step = expected.next()
                model.calls.clear()
                for problem in off(step, generator.next(), model.calls):
                    yield f"{way}, wave {wave}, call {turn}: {problem}"
                    return
            if expected.pending or expected.rows:
                yield "it ends before all answers are there"
            if held := sum(block.ref_cnt for block in manager.pool):
                yield f"{way}, wave {wave}: {held} blocks are still held"
        if generator.stats().prompt_tokens != expected.computed:
            yield f"{generator.stats()} are counted, not {expected.computed}"
        generator.close()
        mx.clear_cache()
