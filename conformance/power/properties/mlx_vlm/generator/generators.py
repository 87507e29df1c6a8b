"""mlx-vlm's ``BatchGenerator`` with a model of a few lines: each row, each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.expected_rows import (
    Asked,
    Biased,
    ByLastToken,
    Forcing,
    Ranked,
    Token,
    answer,
)
from conformance.backend.stub_model import SIZE, VOCAB, StubModel
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.expected_steps import (
    ExpectedSteps,
    Limits,
    Step,
)

ar: Any = compat.part("generate.ar")
base: Any = compat.part("models.base")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/generate/ar.py"
_NEAR = 5e-4
_STOPS = {5, 17}
_MOST_STEPS = 200


def generator_properties() -> list[Property]:
    """The properties of the whole generator."""
    parts = ("BatchGenerator.*", "PromptProcessingBatch.*", "GenerationBatch.*")
    names = (*parts, "_merge_prefill_prompt_kwargs", "_extend_cache", "_make_cache*")
    return [
        Property("generator: rows and steps", _FILE, names, _rows),
        Property("generator: rows removed", _FILE, names, _removed),
    ]


class Stops:
    """A tokenizer's stop tokens."""

    def __init__(self) -> None:
        self.tokens: set[int] = set()

    def add_eos_token_ids(self, tokens: Any) -> None:
        """Add stop tokens."""
        self.tokens |= set(tokens or ())

    def __call__(self, token: int) -> bool:
        """Whether a token ends an answer."""
        return token in self.tokens


@dataclass(frozen=True)
class Way:
    """The arguments with which a generator is made."""

    limits: Limits
    logprobs: bool = True
    top: int = 0
    ranked: bool = False
    windows: tuple[int | None, ...] = (None,)
    cached: bool = True


def make(way: Way, **options: Any) -> tuple[Any, StubModel]:
    """A generator and its model."""
    model = stub(way.windows, cached=way.cached)
    if way.ranked:
        options["sampler"] = Ranked()
    made = ar.BatchGenerator(
        model,
        SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Stops())),
        stop_tokens=_STOPS,
        completion_batch_size=way.limits.decoding,
        prefill_batch_size=way.limits.joining,
        prefill_step_size=way.limits.piece,
        compute_logprobs=way.logprobs,
        top_logprobs_k=way.top,
        **options,
    )
    return made, model


def stub(windows: Sequence[int | None], *, cached: bool = True) -> StubModel:
    """A model whose layers have these windows."""

    def make_cache() -> list[Any]:
        return [caches.RotatingKVCache(w, keep=0) if w else caches.KVCache() for w in windows]

    model = StubModel(base, make_cache, windows)
    if not cached:
        del model.make_cache
    return model


def drawn(seed: int, count: int, *, deltas: bool = False) -> list[Asked]:
    """Requests of all kinds."""
    draw, found = np.random.default_rng(seed), []
    for number in range(count):
        tokens = draw.integers(0, VOCAB, int(draw.integers(1, 12))).tolist()
        one = Asked(tokens, int(draw.integers(1, 9)))
        if number % 3 == 1:
            one.hidden = one.embeddings() + draw.normal(0, 0.3, (len(tokens), SIZE)).astype("f")
        if deltas:
            one.delta = int(draw.integers(1, 6))
            one.positions = np.arange(len(tokens)) * 2
        if number % 4 == 2:
            one.processors = [Biased(number), ByLastToken(number + 1)]
        if number % 5 == 3:
            one.budget = (int(draw.integers(1, 4)), int(draw.integers(6, 9)))
        found.append(one)
    return found


def insert(generator: Any, some: Sequence[Asked], *, three: bool = False) -> list[int]:
    """Insert requests like a server; positions have three axes, as for images, or one."""
    kwargs, kept = [], generator.apc_manager is not None
    for one in some:
        given: dict[str, Any] = {"inputs_embeds": mx.array(one.embeddings()[None])}
        if one.positions is not None:
            at = mx.array(one.positions[None])
            given["position_ids"] = mx.stack([at, at, at]) if three else at
            given["rope_deltas"] = mx.array([[one.delta]])
        if kept:
            given |= {"_apc_semantic_hash": one.key, "_apc_tenant": "a"}
        kwargs.append(given)
    more: dict[str, Any] = {}
    if any(one.processors for one in some):
        more["logits_processors"] = [list(one.processors) or None for one in some]
    if any(one.budget for one in some):
        more["thinking_budget_criteria"] = [one.budget and Forcing(*one.budget) for one in some]
    prompts, most = [one.tokens for one in some], [one.most for one in some]
    return list(generator.insert(prompts, most, prompt_kwargs=kwargs, **more))


def expect(way: Way, some: Sequence[Asked]) -> list[Iterator[Token]]:
    """The expected answers."""
    rank = Ranked.rank if way.ranked else lambda _: 0
    return [
        answer(
            one,
            {(n,) for n in _STOPS},
            rank=rank,
            logprobs=way.logprobs,
            top=way.top,
            windows=way.windows,
        )
        for one in some
    ]


def off(step: Step, got: tuple[Any, Any], calls: Sequence[Any]) -> Iterator[str]:
    """The differences of a call of ``next`` from the required step."""
    progress, responses = got
    if [one.uid for one in responses] != [number for number, _ in step.given]:
        yield f"tokens are of {[one.uid for one in responses]}, not of {step.given}"
        return
    for one, (number, want) in zip(responses, step.given, strict=True):
        if (one.token, one.finish_reason) != (want.token, want.reason):
            yield f"{number} gets {one.token}, {one.finish_reason}, not {want}"
        if want.logprob is not None and not abs(one.token_logprob - want.logprob) < _NEAR:
            yield f"{number} gets the logprob {one.token_logprob}, not {want}"
        if (one.top_logprobs is None) != (want.top is None):
            yield f"{number} gets {one.top_logprobs}, not {want}"
        for had, wanted in zip(one.top_logprobs or (), want.top or (), strict=True):
            if had[0] != wanted[0] or not abs(had[1] - wanted[1]) < _NEAR:
                yield f"{number} gets {one.top_logprobs}, not {want}"
    ended = [(one.uid, one.prompt_tokens, one.cached_tokens) for one in progress]
    if ended != step.progress:
        yield f"prompts {ended} end, not {step.progress}"
    for one in progress:
        if not one.prompt_time > 0 or one.prompt_tps != one.prompt_tokens / one.prompt_time:
            yield f"the speed of a prompt is {one}"
    yield from _calls_off(step, calls)


def _calls_off(step: Step, calls: Sequence[Any]) -> Iterator[str]:
    got = [
        (len(call.tokens), len(call.tokens[0]), _kept_of(call.options, len(call.tokens[0])))
        for call in calls
    ]
    if got != step.calls:
        yield f"the model is called with {got}, not {step.calls}"
    private = [name for call in calls for name in call.options if name.startswith("_apc")]
    if private:
        yield f"the model is given {private}"


def _kept_of(options: Mapping[str, Any], columns: int) -> int | None:
    """The number of columns whose logits are kept, as in ``Step``."""
    said = options.get("n_to_process"), options.get("logits_to_keep")
    if said == (columns, None):
        return -1
    return said[1] or 0 if said[0] is None else None


def _rows() -> Iterator[str]:
    """Requests of all kinds arrive in two waves."""
    ways = [
        Way(Limits(4, 2, 3)),
        Way(Limits(4, 2, 3), top=3),
        Way(Limits(3, 1, None), logprobs=False),
        Way(Limits(8, 8, 1), ranked=True, cached=False),
        Way(Limits(5, 3, None), top=1, ranked=True, windows=(None, 4)),
        Way(Limits(2, 2, 64), windows=(5,)),
    ]
    for number, (way, deltas) in enumerate(itertools.product(ways, (False, True))):
        generator, model = make(way)
        expected = ExpectedSteps(way.limits)
        counted = 0
        if generator.has_work or generator.has_pending_prompts:
            yield "a new generator has work"
        for turn in range(_MOST_STEPS):
            if turn in (0, 6):
                some = drawn(2 * number + turn, 5, deltas=deltas)
                if number % 3 == turn % 4:
                    some[0].processors = [Biased(3, at_once=True)]
                numbers = insert(generator, some)
                answers = zip(some, expect(way, some), strict=True)
                expected.insert(dict(zip(numbers, answers, strict=True)))
            if not generator.has_work:
                break
            step = expected.next()
            model.calls.clear()
            got = generator.next()
            counted += len(got[1])
            for problem in off(step, got, model.calls):
                yield f"{way}, call {turn}: {problem}"
                return
            if generator.has_pending_prompts != expected.pending:
                yield f"{way}, call {turn}: pending prompts are not {expected.pending}"
        yield from _ended(generator, expected, counted)


def _ended(generator: Any, expected: ExpectedSteps, counted: int) -> Iterator[str]:
    stats = generator.stats()
    if expected.pending or expected.rows or not counted:
        yield "it ends before all answers are there"
    if (stats.prompt_tokens, stats.generation_tokens) != (expected.computed, counted):
        yield f"counts are {stats}, not {expected.computed} and {counted}"
    if (
        not 0 < stats.prompt_time < 100
        or stats.prompt_tps != stats.prompt_tokens / stats.prompt_time
    ):
        yield f"the speed of prompts is {stats}"
    generator.close()


def _removed() -> Iterator[str]:
    """A row leaves at each moment: while waiting, in prefill, and in decode."""
    ways = [
        Way(Limits(4, 3, 2), top=2),
        Way(Limits(6, 2, 1), windows=(None, 4)),
        Way(Limits(2, 1, 3)),
    ]
    for way, moment, which in itertools.product(ways, (0, 1, 3, 6), (0, 2)):
        generator, model = make(way)
        expected = ExpectedSteps(way.limits)
        some = drawn(moment, 5, deltas=which == 2)
        numbers = insert(generator, some, three=which == 2)
        answers = zip(some, expect(way, some), strict=True)
        expected.insert(dict(zip(numbers, answers, strict=True)))
        for turn in range(_MOST_STEPS):
            if turn == moment:
                gone = generator.remove(numbers[which]), generator.remove(99)
                if gone != (expected.remove(numbers[which]), False):
                    yield f"{way}, call {turn}: removed are {gone}"
            if not generator.has_work:
                break
            step = expected.next()
            model.calls.clear()
            got = generator.next()
            for problem in off(step, got, model.calls):
                yield f"{way}, without {which} from call {moment}, call {turn}: {problem}"
                return
        if expected.pending or expected.rows:
            yield "it ends before all answers are there"
