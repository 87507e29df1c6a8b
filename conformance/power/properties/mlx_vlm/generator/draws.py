"""mlx-vlm's draws for a row depend only on its seed, row and position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.sampler_properties import shares_off
from conformance.backend.token_filters import top_k, top_p
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

ar: Any = compat.part("generate.ar")

_FILE = "mlx_vlm/generate/ar.py"
_VOCAB, _DRAWS = 17, 3000
# The constant that makes the seed of proposals different.
_PROPOSALS = 0x0DFA5202
# Keys by seed, row and position: a seed gives the same answer in each release.
_KEYS = {
    (0, 0, 0): 2291442603,
    (7, 0, 1): 1347628614,
    (7, 3, 1): 1264717762,
    (1 << 40, 2, 900): 3102450635,
    (-5, 1, 70000): 823308093,
}


def draw_properties() -> list[Property]:
    """The properties of the sampler with keyed draws."""
    keys = ("_position_*",)
    return [
        Property("draws: keys", _FILE, keys, _keys),
        Property("draws: targets", _FILE, (*keys, "_PositionedTargetSampler.*"), _targets),
        Property("draws: positions", _FILE, ("_sample_with_positions", "_clone_or_*"), _positions),
    ]


def _keys() -> Iterator[str]:
    """Different seeds, rows and positions have different keys, spread over all bits."""
    cases = [(s, r, p) for s in (0, 1, 2, 1 << 31) for r in range(12) for p in range(40)]
    found = [ar._position_seed(*case) for case in cases]
    if min(found) < 0 or max(found) >= 1 << 32:
        yield f"keys are from {min(found)} to {max(found)}"
    if len(set(found)) != len(found):
        yield f"of {len(found)} keys {len(set(found))} are different"
    bits = [np.mean([key >> bit & 1 for key in found]) for bit in range(32)]
    if not 0.42 < min(bits) <= max(bits) < 0.58:
        yield f"a bit of the keys is set in {min(bits):.2f} to {max(bits):.2f} of them"
    if (got := {case: ar._position_seed(*case) for case in _KEYS}) != _KEYS:
        yield f"keys are {got}, no longer {_KEYS}"
    stacked = ar._position_keys(5, [1, 2, 1], [7, 7, 9])
    want = [mx.random.key(ar._position_seed(5, r, p)) for r, p in ((1, 7), (2, 7), (1, 9))]
    if not mx.array_equal(stacked, mx.stack(want)):
        yield "the keys of rows are not those of their numbers"


def _targets() -> Iterator[str]:
    """Draws follow the filtered probabilities, equal in all batches, unlike proposals."""
    scores = np.random.default_rng(4).normal(0, 1.5, _VOCAB)
    row = np.asarray(scores - np.log(np.exp(scores).sum()), np.float32)
    many = mx.repeat(mx.array(row)[None], _DRAWS, axis=0)
    at = {"row_ids": [0] * _DRAWS, "positions": list(range(_DRAWS))}
    cases: list[tuple[dict[str, Any], Callable[[np.ndarray, float], np.ndarray]]] = [
        ({"temperature": 0.7, "top_p": 1.0}, lambda x, _: np.ones(x.shape, bool)),
        ({"temperature": 1.3, "top_p": 0.0}, lambda x, _: np.ones(x.shape, bool)),
        ({"temperature": 0.7, "top_p": 0.6}, lambda x, t: top_p(x / t, 0.6)),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 3}, lambda x, _: top_k(x, 3)),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 1}, lambda x, _: top_k(x, 1)),
    ]
    for options, left in cases:
        sampler = ar._PositionedTargetSampler(seed=3, **options)
        heat = options["temperature"]
        probs = np.where(left(row, heat), np.exp(row / heat), 0.0)
        tokens = sampler.sample_target(many, **at)
        yield from shares_off(f"targets with {options}", tokens, probs / probs.sum())
        mx.random.seed(2)
        yield from shares_off(f"calls with {options}", sampler(many), probs / probs.sum())
        proposals = sampler.sample_proposal(many, **at)
        whole = np.exp(row / heat)
        yield from shares_off(f"proposals with {options}", proposals, whole / whole.sum())
        if len({*probs[probs > 0]}) > 1 and mx.array_equal(tokens, proposals):
            yield "proposals are drawn as targets are"
        last = list(range(_DRAWS))[:-65:-1]
        few = sampler.sample_target(many[:64], row_ids=[0] * 64, positions=last)
        if few.tolist() != tokens.tolist()[:-65:-1] or tokens.shape != (_DRAWS,):
            yield f"with {options} a row draws another token beside others"
        other = ar._PositionedTargetSampler(seed=3 ^ _PROPOSALS, temperature=heat, top_p=0)
        first = {"row_ids": [0] * 64, "positions": list(range(64))}
        if not mx.array_equal(proposals[:64], other.sample_target(many[:64], **first)):
            yield "proposals are no longer drawn as in the last release"
    yield from _by_seed(many[:64])


def _by_seed(many: mx.array) -> Iterator[str]:
    rows, places = [0] * 64, list(range(64))
    drawn = {
        (seed, row, shift): tuple(
            ar._PositionedTargetSampler(temperature=1.0, top_p=1.0, seed=seed)
            .sample_target(many, row_ids=[row] * 64, positions=[p + shift for p in places])
            .tolist()
        )
        for seed in (1, 2)
        for row in (0, 1)
        for shift in (0, 64)
    }
    if len(set(drawn.values())) != len(drawn):
        yield "another seed, row or position draws the same"
    sampler = ar._PositionedTargetSampler(temperature=0.001, top_p=1, seed="7")
    if (sampler.temperature, sampler.top_k, sampler.seed) != (0.01, 0, 7):
        yield f"the options are {vars(sampler)}"
    for wrong in ((rows[1:], places), (rows, places[1:]), (rows[1:], places[1:])):
        try:
            sampler.sample_target(many, row_ids=wrong[0], positions=wrong[1])
        except ValueError:
            continue
        yield "numbers of rows that are not there are taken"


def _positions() -> Iterator[str]:
    """A sampler that takes rows and positions gets them if both are known."""

    class Both:
        def __call__(self, logprobs: Any) -> tuple[Any, ...]:
            return ("alone", logprobs)

        def sample_target(self, logprobs: Any, *, row_ids: Any, positions: Any) -> tuple[Any, ...]:
            return ("placed", logprobs, row_ids, positions)

    ask = ar._sample_with_positions
    got = [
        ask(Both(), 1, row_ids=[2], positions=[3]),
        ask(Both(), 1, row_ids=[2]),
        ask(Both(), 1, positions=[3]),
        ask(Both(), 1),
        ask(lambda given: ("plain", given), 1, row_ids=[2], positions=[3]),
        ask(Both(), 1, row_ids=[], positions=[]),
    ]
    alone = ("alone", 1)
    if got != [("placed", 1, [2], [3]), alone, alone, alone, ("plain", 1), ("placed", 1, [], [])]:
        yield f"samplers are asked for {got}"
    copied = ar._clone_or_share_logits_processor(SimpleNamespace(clone=lambda: "copy"))
    if copied != "copy":
        yield "a processor that can be copied is shared"
