"""The parts of a step of mlx-lm's ``BatchGenerator``: stop sequences, samplers and counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from mlx_lm.models import base, cache

from conformance.backend.stub_model import StubModel
from conformance.core.properties import Property

# The package has a function of the same name.
generate: Any = importlib.import_module("mlx_lm.generate")

_FILE = "mlx_lm/generate.py"
# Few tokens, so that sequences overlap.
_TOKENS, _TEXT = 3, 40
# Prompts that begin to decode together.
_PROMPTS, _ANSWER = ([1, 2], [4, 3], [5, 6]), 4


def step_properties() -> list[Property]:
    """The properties of the parts of a step."""
    batches = ("GenerationBatch.*", "PromptProcessingBatch.*", "BatchGenerator.*")
    return [
        Property("steps: stop sequences", _FILE, ("_build_trie", "StopSequences*"), _stops),
        Property("steps: who samples", _FILE, ("_normalize_samplers", *batches), _samplers),
        Property("steps: what is counted", _FILE, batches, _counts),
        Property("steps: bytes of caches", _FILE, ("BatchGenerator.*",), _nbytes),
        Property("steps: who is padded", _FILE, batches, _padded),
    ]


def _stops() -> Iterator[str]:
    """An answer ends when its tokens end with a stop sequence; the longest one is reported."""
    for seed in range(40):
        draw = np.random.default_rng(seed)
        # Some contain others or begin alike; one has no tokens, one is not a sequence.
        lengths = draw.integers(0, 5, size=seed % 5 + 1)
        sequences: list[Any] = [draw.integers(0, _TOKENS, n).tolist() for n in lengths]
        patterns = [tuple(sequence) for sequence in sequences]
        if seed % 4 == 0:
            sequences.append(seed % _TOKENS)
            patterns.append((seed % _TOKENS,))
        matcher = generate.StopSequences(sequences).matcher()
        tokens = draw.integers(0, _TOKENS + 1, _TEXT).tolist()
        for end in range(1, _TEXT + 1):
            found = [p for p in patterns if p and tuple(tokens[:end][-len(p) :]) == p]
            got = matcher.advance(tokens[end - 1])
            if got != bool(found):
                yield f"{tokens[:end]} ends with {found} of {patterns}, and is said to: {got}"
                return
            longest = max(found, key=len, default=())
            named, number = matcher._node.get("__match__") or ((), 0)
            if named != longest or (longest and patterns[number] != longest):
                yield f"after {tokens[:end]} of {patterns} {named} is named, not {longest}"
                return
    none: tuple[Any, ...] = (generate.StopSequences(), generate.StopSequences([]))
    if any(one.matcher().advance(0) for one in none):
        yield "without sequences a token ends the answer"


class _Best:
    """Takes the likeliest token and records the number of rows of each call."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, logprobs: mx.array) -> mx.array:
        self.rows.append(logprobs.shape[0])
        return mx.argmax(logprobs, axis=-1)


def _generator(decoding: int = 4, joining: int = 4, piece: int = 8, **options: Any) -> Any:
    return generate.BatchGenerator(
        StubModel(base, lambda: [cache.KVCache()], wrapped=False),
        max_tokens=_ANSWER,
        completion_batch_size=decoding,
        prefill_batch_size=joining,
        prefill_step_size=piece,
        **options,
    )


def _answered(generator: Any, **options: Any) -> int:
    """The number of calls of ``next`` until each prompt had its answer."""
    waiting = set(generator.insert(list(_PROMPTS), **options))
    for calls in count(1):
        _, responses = generator.next()
        waiting -= {one.uid for one in responses if one.finish_reason}
        if not waiting or calls > 40:
            return calls
    raise AssertionError


def _samplers() -> Iterator[str]:
    """A shared sampler is called once a step, with all rows; others with their own rows."""
    rows, shared, own = len(_PROMPTS), _Best(), [_Best() for _ in _PROMPTS]
    ways: Sequence[tuple[str, Any, dict[str, Any], list[_Best], int]] = (
        ("the generator's", shared, {}, [shared], rows),
        ("that of each row", None, {"samplers": [shared] * rows}, [shared], rows),
        ("one's own", None, {"samplers": own}, own, 1),
    )
    for name, of_all, options, asked, at_once in ways:
        for one in asked:
            one.rows.clear()
        _answered(_generator(sampler=of_all), **options)
        for one in asked:
            if not one.rows or set(one.rows) - {at_once} or len(one.rows) > _ANSWER + 1:
                yield f"{name} is asked for {one.rows} rows"


def _counts() -> Iterator[str]:
    """Counts of tokens and steps, and times of each part, by a clock that counts its reads."""
    ticks = count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    generator = _generator()
    with mock.patch.object(generate, "time", clock), generator.stats() as stats:
        calls = _answered(generator)
    prompts = sum(len(prompt) - 1 for prompt in _PROMPTS)
    wanted = {
        "prompt_tokens": prompts,
        "prompt_time": calls,
        "generation_tokens": _ANSWER * len(_PROMPTS),
        "generation_steps": _ANSWER,
        "decode_time": _ANSWER,
    }
    got = {name: getattr(stats, name) for name in wanted}
    if got != wanted:
        yield f"in {calls} calls are counted {got}, not {wanted}"


def _nbytes() -> Iterator[str]:
    """Bytes of waiting rows, of prompts at work, and of decoding rows."""
    with (
        mock.patch.object(cache.KVCache, "nbytes", 1),
        mock.patch.object(cache.BatchKVCache, "nbytes", 100),
    ):
        generator = _generator(decoding=3, joining=1, piece=2)
        generator.insert([[1], [2] * 9, [3], [4]])
        # After each call: the first row decodes, the second is at work too.
        for wanted in (4, 103, 202):
            if (got := generator.prompt_cache_nbytes) != wanted:
                yield f"of caches of 1 byte, and of 100 in a batch, it counts {got}, not {wanted}"
            generator.next()


def _padded() -> Iterator[str]:
    """Caches are prepared for padding only if rows differ in length."""
    for prompts, wanted in (
        (_PROMPTS, []),
        (([1, 2, 3, 4], [5, 6]), [{"lengths": [3, 1], "right_padding": [0, 2]}]),
    ):
        prepare = mock.patch.object(
            cache.BatchKVCache, "prepare", autospec=True, side_effect=cache.BatchKVCache.prepare
        )
        with prepare as called:
            generator = _generator()
            generator.insert(list(prompts))
            generator.next()
        got = [call.kwargs for call in called.call_args_list]
        if got != wanted:
            yield f"of {prompts} caches are prepared for {got}, not {wanted}"
