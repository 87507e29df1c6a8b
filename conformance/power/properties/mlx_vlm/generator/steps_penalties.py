"""Checks mlx-vlm's logits processors and filters of tokens against definitions in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.random_state import drawing_kept
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

samplers: Any = compat.part("sample_utils")

_FILE, _VOCAB, _NOISE = "mlx_vlm/sample_utils.py", 9, 1e-6
# 24 tokens: the last 20, which count by default, do not contain the first token.
_TOKENS = [8, *np.random.default_rng(2).integers(0, 6, 23).tolist()]


def penalty_properties() -> list[Property]:
    """The properties of ``make_logits_processors``."""
    names = ("make_logits_processors*", "make_*_penalty*")
    return [
        Property("penalties: of tokens", _FILE, names, _penalties),
        Property("penalties: together", _FILE, names, _together),
        Property("choices: of each row", _FILE, ("make_sampler*", "top_p_sampling"), _greedy),
        Property("choices: at a boundary", _FILE, ("apply_top_p",), _boundary),
        Property("choices: of large logits", _FILE, ("top_p_sampling", "apply_top_p"), _large),
    ]


def _logits() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 2, (1, _VOCAB)).astype(np.float32)


def penalized(kind: str, size: float, tokens: list[int], logits: np.ndarray) -> np.ndarray:
    """Logits ``[1, vocab]`` after the tokens that count."""
    found = logits.astype(np.float64)
    for token in set(tokens):
        value = found[:, token]
        if kind == "repetition":
            found[:, token] = np.where(value < 0, value * size, value / size)
        else:
            found[:, token] = value - size * (1 if kind == "presence" else tokens.count(token))
    return found


def _differing(what: str, got: mx.array, want: np.ndarray) -> Iterator[str]:
    if got.shape != want.shape or not np.allclose(np.array(got), want, atol=_NOISE):
        yield f"{what}: {got}, not {want}"


def _penalties() -> Iterator[str]:
    """Penalties of the last tokens: once or for each occurrence; none without tokens."""
    kinds = ("repetition", "presence", "frequency")
    for kind, size, count in itertools.product(kinds, (1.5, 0.3), (None, 1, 4)):
        make = getattr(samplers, f"make_{kind}_penalty")
        one = make(size) if count is None else make(size, count)
        for tokens in (_TOKENS, _TOKENS[:1], []):
            last = tokens[-(count or 20) :]
            want = penalized(kind, size, last, _logits())
            given: Any = mx.array(tokens) if tokens else []
            yield from _differing(f"{kind} of {last}", one(given, mx.array(_logits())), want)
    for wrong in (-0.1, np.float32(1.5)):
        try:
            samplers.make_repetition_penalty(wrong)
        except ValueError as error:
            if str(wrong) not in str(error):
                yield f"a penalty of {wrong} is refused with {error}"
            continue
        yield f"a penalty of {wrong!r} is taken"


def _together() -> Iterator[str]:
    """Biases come first, then each penalty with its own number of tokens."""
    bias = {2: 1.5, 5: -3.0}
    biased = _logits()
    biased[:, list(bias)] += list(bias.values())
    kinds = ("repetition", "presence", "frequency")
    cases: list[tuple[dict[str, Any], list[tuple[str, float, int]]]] = [
        *(({f"{k}_penalty": 0.7}, [(k, 0.7, 20)]) for k in kinds),
        *(({f"{k}_penalty": 0.7, f"{k}_context_size": 3}, [(k, 0.7, 3)]) for k in kinds),
        *(({f"{k}_penalty": none}, []) for k in kinds for none in (0, 0.0, None)),
        (
            {f"{kind}_penalty": 0.5 + n for n, kind in enumerate(kinds)},
            [(kind, 0.5 + n, 20) for n, kind in enumerate(kinds)],
        ),
        ({}, []),
    ]
    for (options, applied), with_bias in itertools.product(cases, (None, {}, bias)):
        made = samplers.make_logits_processors(with_bias, **options)
        if len(made) != len(applied) + bool(with_bias):
            yield f"with {options} and {with_bias} there are {len(made)} processors"
        got, want = mx.array(_logits()), biased if with_bias else _logits()
        for one in made:
            got = one(mx.array(_TOKENS), got)
        for kind, size, count in applied:
            want = penalized(kind, size, _TOKENS[-count:], want)
        yield from _differing(f"{options}, {with_bias}", got, want)


def _greedy() -> Iterator[str]:
    """A temperature of 0 takes the best token of each row, whatever its axes."""
    logits = np.random.default_rng(6).normal(0, 2, (4, 3, _VOCAB)).astype(np.float32)
    for given in (logits, logits[0], logits[0, 0]):
        for what, got in (
            ("make_sampler", samplers.make_sampler()(mx.array(given))),
            ("top_p_sampling", samplers.top_p_sampling(mx.array(given), 0.5, 0.0)),
        ):
            if got.tolist() != given.argmax(-1).tolist():
                yield f"{what} chooses {got.tolist()} without a temperature"


def _boundary() -> Iterator[str]:
    """A share that the likeliest tokens have exactly needs no other token; ties stay."""
    logprobs = mx.log(mx.array([0.25, 1.0, 0.5, 0.25]))
    # Shares of a half, a quarter and an eighth, where exponentials are exact.
    if mx.exp(logprobs).tolist() != [0.25, 1.0, 0.5, 0.25]:
        return
    for share, left in ((0.5, 1), (0.75, 2), (0.51, 2), (0.76, 4)):
        kept = mx.isfinite(samplers.apply_top_p(logprobs[None], share)).sum().item()
        if kept != left:
            yield f"a share of {share} leaves {kept} tokens, not {left}"


def _large() -> Iterator[str]:
    """Shares depend only on differences, also for logits whose exponentials are infinite."""
    logits = np.array([0.0, -0.5, -1.0, -9.0], np.float32)
    rows = mx.repeat(mx.array(logits)[None], 400, axis=0)
    for more, temperature in ((-200.0, 1.0), (60.0, 1.0), (200.0, 1.0), (0.9, 0.01)):
        mx.random.seed(4)
        with drawing_kept():
            tokens = samplers.top_p_sampling(rows * temperature + more, 0.9, temperature)
        if set(tokens.tolist()) != {0, 1, 2}:
            yield f"of logits about {more} {sorted(set(tokens.tolist()))} are chosen"
