"""mlx-lm's ``BatchGenerator`` with a model of a few lines: each row, each step."""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import base, cache

from conformance.backend.expected_rows import Asked, Biased, Token, answer
from conformance.backend.stub_model import VOCAB, StubModel
from conformance.core.properties import Property
from conformance.power.properties.mlx_lm.expected_steps import STOPS, WINDOWS, Expected, Row

# The package has a function of the same name.
generate: Any = importlib.import_module("mlx_lm.generate")

_FILES = "mlx_lm/generate.py"
_NEAR = 5e-4
_MOST_STEPS = 150
# Given explicitly, as in a run: no run reads the defaults.
_SIZES = {"completion_batch_size": 8, "prefill_batch_size": 4, "prefill_step_size": 64}


def generator_properties() -> list[Property]:
    """The properties of the whole generator, and of ``batch_generate``."""
    names = (
        *("BatchGenerator.*", "PromptProcessingBatch.*", "GenerationBatch.*", "_merge_caches"),
        *("_extend_cache", "_right_pad_prompts", "_normalize_*", "_build_trie", "StopSequences*"),
        *("BatchCounters*", "BatchStats*"),
    )
    return [
        Property("generator: rows and steps", _FILES, names, _rows),
        Property("generator: rows removed", _FILES, names, _removed),
        Property("generator: what is refused", _FILES, ("BatchGenerator.*", *names[3:]), _refused),
        Property("batches: answers", _FILES, ("batch_generate", *names[:3]), _answers),
    ]


def _stub() -> StubModel:
    def make_cache() -> list[Any]:
        return [cache.KVCache(), cache.RotatingKVCache(max_size=WINDOWS[1])]

    return StubModel(base, make_cache, WINDOWS, wrapped=False)


class _Rank:
    """A sampler that takes the token of a rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.rows: list[int] = []

    def __call__(self, logprobs: mx.array) -> mx.array:
        self.rows.append(logprobs.shape[0])
        return mx.argsort(-logprobs, axis=-1)[:, self.rank]


def _off(expected: Expected, generator: Any, model: StubModel) -> Iterator[str]:
    """The differences of a call of ``next``; caches of ended rows are kept with the rows."""
    said, given, calls = expected.next()
    model.calls.clear()
    prompts, responses = generator.next()
    got = [(one.uid, tuple(one.progress), one.end_of_segment, one.end_of_prompt) for one in prompts]
    if got != said:
        yield f"of prompts {got} is said, not {said}"
    if [one.uid for one in responses] != [number for number, _ in given]:
        yield f"tokens are of {[one.uid for one in responses]}, not of {[n for n, _ in given]}"
        return
    shapes = [(len(call.tokens), len(call.tokens[0])) for call in model.calls]
    if shapes != calls:
        yield f"the model is called with {shapes}, not {calls}"
    for one, (number, want) in zip(responses, given, strict=True):
        if (one.token, one.finish_reason) != (want.token, want.reason):
            yield f"{number} gets {one.token}, {one.finish_reason}, not {want}"
        if not np.abs(np.array(one.logprobs) - want.scores).max() < _NEAR:
            yield f"{number} gets other logprobs with {want}"
        row = expected.rows[number]
        row.given.append(one.token)
        tokens = row.before + row.asked.tokens + row.given
        if want.reason is None:
            if one.prompt_cache is not None or one.all_tokens is not None:
                yield f"{number} gives its caches before it ends"
        elif one.all_tokens != tokens or one.prompt_cache[0].offset != len(tokens):
            yield f"{number} ends with {one.all_tokens}, not {tokens}"
        else:
            row.kept = one.prompt_cache


def _drawn(seed: int, count: int) -> list[Row]:
    draw, found = np.random.default_rng(seed), []
    for number in range(count):
        tokens = draw.integers(0, VOCAB, int(draw.integers(1, 12))).tolist()
        cuts = sorted(draw.integers(0, len(tokens) + 1, int(draw.integers(0, 3))).tolist())
        edges = [0, *cuts, len(tokens)]
        row = Row(
            Asked(tokens, int(draw.integers(1, 9))),
            [tokens[a:b] for a, b in itertools.pairwise(edges)],
        )
        if number % 3 == 1:
            row.asked.processors = [Biased(number), Biased(number + 1)]
        if number % 4 == 2:
            row.rank = number % 3
        found.append(row)
    return found


def _insert(generator: Any, expected: Expected, rows: Sequence[Row], *, alike: bool) -> list[int]:
    """Insert like a server: samplers and processors by row, or none at all."""
    if alike:
        for row in rows:
            row.rank, row.asked.processors = None, []
    samplers: dict[int | None, Any] = {r: None if r is None else _Rank(r) for r in (None, 0, 1, 2)}
    more: dict[str, Any] = {}
    if not alike:
        more["samplers"] = [samplers[row.rank] for row in rows]
        more["logits_processors"] = [list(row.asked.processors) or None for row in rows]
    if any(row.before for row in rows):
        more["all_tokens"] = [list(row.before) for row in rows]
        more["caches"] = [row.kept for row in rows]
    most = [row.asked.most for row in rows]
    numbers = list(generator.insert_segments([row.segments for row in rows], most, **more))
    for number, row in zip(numbers, rows, strict=True):
        expected.insert(number, row)
    return numbers


def _again(rows: Sequence[Row], seed: int) -> list[Row]:
    """Requests that continue ended ones, together with a new one."""
    found = _drawn(seed, 4)
    done = [row for row in rows if row.kept is not None]
    for row, old in zip(found, done, strict=False):
        row.before = old.before + old.asked.tokens + old.given
        row.kept = old.kept
    return found


def _rows() -> Iterator[str]:
    """Requests of all kinds arrive in three waves, the last of which continues the first."""
    for seed, bounds in enumerate(((4, 2, 3), (3, 3, 64), (8, 8, 1), (2, 3, 2))):
        model, expected = _stub(), Expected(*bounds)
        limits = dict(
            zip(
                ("completion_batch_size", "prefill_batch_size", "prefill_step_size"),
                bounds,
                strict=True,
            )
        )
        generator = generate.BatchGenerator(model, stop_tokens=[list(s) for s in STOPS], **limits)
        with generator.stats() as stats:
            for turn in range(_MOST_STEPS):
                if turn in (0, 4, 40):
                    rows = (
                        _again(list(expected.rows.values()), seed)
                        if turn == 40
                        else _drawn(seed + turn, 5)
                    )
                    _insert(generator, expected, rows, alike=seed == 1)
                for problem in _off(expected, generator, model):
                    yield f"limits {bounds}, call {turn}: {problem}"
                    return
                if turn > 40 and not (expected.waiting or expected.prompts or expected.decoding):
                    break
        if expected.waiting or expected.prompts or expected.decoding:
            yield "it ends before all answers are there"
        counts = {"prompts": stats.prompt_tokens, "given": stats.generation_tokens}
        if counts != dict(expected.counted):
            yield f"counted are {counts}, not {dict(expected.counted)}"
        generator.close()


def _removed() -> Iterator[str]:
    """A row leaves at each moment; its kept cache continues like a new request."""
    for moment, which in ((0, 0), (1, 0), (1, 3), (2, 2), (4, 0), (4, 3), (7, 2)):
        model, expected = _stub(), Expected(3, 2, 3)
        limits = {"completion_batch_size": 3, "prefill_batch_size": 2, "prefill_step_size": 3}
        generator = generate.BatchGenerator(model, stop_tokens=[list(s) for s in STOPS], **limits)
        numbers = _insert(generator, expected, _drawn(moment, 5), alike=which == 3)
        for turn in range(40):
            if turn == moment:
                there = [
                    *expected.waiting,
                    *expected.decoding,
                    *(p.number for p in expected.prompts),
                ]
                before = generator.prompt_cache_nbytes
                kept = generator.remove([numbers[which], 99], return_prompt_caches=True)
                expected.remove(numbers[which])
                if set(kept) != {numbers[which]} & set(there):
                    yield f"call {turn}: of {numbers[which]} is kept {kept}"
                if before < generator.prompt_cache_nbytes:
                    yield "caches are larger without a row"
                for caches, tokens in kept.values():
                    row = expected.rows[numbers[which]]
                    every = row.before + row.asked.tokens + row.given
                    if caches[0].offset != len(tokens) or tokens != every[: len(tokens)]:
                        yield f"call {turn}: of {every} {tokens} are kept"
            for problem in _off(expected, generator, model):
                yield f"without {which} from call {moment}, call {turn}: {problem}"
                return
        if expected.waiting or expected.prompts or expected.decoding:
            yield "it ends before all answers are there"
        if generator.next_generated():
            yield "it gives more"


def _refused() -> Iterator[str]:
    """Options for a wrong number of rows, empty prompts and empty answers are refused."""
    generator = generate.BatchGenerator(_stub(), max_tokens=3, **_SIZES)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([[1], [2]], {"max_tokens": [3]}, "max_tokens"),
        ([[1], [2]], {"all_tokens": [[1]]}, "all_tokens"),
        ([[1], [2]], {"caches": [None]}, "caches"),
        ([[1], [2]], {"samplers": [None]}, "samplers"),
        ([[1], [2]], {"logits_processors": [None]}, "logits_processors"),
        ([[1], [2]], {"stop_sequences": [generate.StopSequences()]}, "stop_sequences"),
        ([[1], []], {}, "empty prompt"),
        ([[1], [2]], {"max_tokens": [1, 0]}, "max_tokens"),
        ([[1], [2]], {"max_tokens": [1, -1]}, "max_tokens"),
    ]
    for prompts, options, word in wrong:
        try:
            generator.insert(prompts, **options)
        except ValueError as error:
            if word not in str(error):
                yield f"{options} is refused with {error}"
            continue
        yield f"{prompts} with {options} is taken"
    if generator.insert([[1], [2]]) != [0, 1] or generator.insert([[3]]) != [2]:
        yield "what is refused has numbers"
    given: Counter[int] = Counter()
    while responses := generator.next_generated():
        given.update(one.uid for one in responses)
    if set(given.values()) != {3}:
        yield f"by default rows give {given} tokens"


def _answers() -> Iterator[str]:
    """Results of ``batch_generate`` in the order of prompts, optional results, and counts."""
    decode: Callable[[list[int]], str] = str
    tokenizer = SimpleNamespace(eos_token_ids=[5, 17], decode=decode)
    for seed, (each, more) in enumerate(itertools.product((True, False), (True, False))):
        rows = _drawn(seed + 50, 5)
        for row in rows:
            row.asked.processors = []
            row.asked.most = row.asked.most if each else 4
        want = [list(answer(row.asked, {(5,), (17,)}, windows=WINDOWS)) for row in rows]
        tokens = [[one.token for one in some if one.reason != "stop"] for some in want]
        most = [row.asked.most for row in rows] if each else 4
        wanted = ("return_token_ids", "return_logprobs", "return_prompt_caches")
        options: dict[str, Any] = dict.fromkeys(wanted, more) | _SIZES
        prompts = [row.asked.tokens for row in rows]
        got = generate.batch_generate(_stub(), tokenizer, prompts, max_tokens=most, **options)
        if got.texts != [str(own) for own in tokens] or got.token_ids != (tokens if more else None):
            yield f"the answers are {got.texts}, not {tokens}"
        counts = got.stats.generation_tokens, got.stats.prompt_tokens
        if counts != (sum(map(len, want)), sum(len(prompt) - 1 for prompt in prompts)):
            yield f"counted are {got.stats}"
        if more in (got.caches is None, got.logprobs is None):
            yield "what is not asked for is given, or what is asked for is not"
        if more:
            yield from _beside(got, rows, want)


def _beside(got: Any, rows: Sequence[Row], want: Sequence[Sequence[Token]]) -> Iterator[str]:
    for row, own, logprobs, caches in zip(rows, want, got.logprobs, got.caches, strict=True):
        wanted = [one.logprob or 0.0 for one in own if one.reason != "stop"]
        if len(logprobs) != len(wanted) or not np.allclose(logprobs, wanted, atol=_NEAR):
            yield f"logprobs are {logprobs}, not {wanted}"
        if caches[0].offset != len(row.asked.tokens) + len(own):
            yield f"the caches are of {caches[0].offset} tokens"
