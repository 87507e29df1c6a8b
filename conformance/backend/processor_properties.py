"""Checks a library's logits processors against definitions in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property

_VOCAB = 12
# The default length of a context.
_CONTEXT = 20
_NOISE = 1e-5
# A row: the oldest tokens are outside of every context, some occur twice; some logits are negative.
_TOKENS = (11, *(10,) * 3, *(0, 1, 2, 1, 3, 0) * 3, 4, 1)
_BIAS = {3: -1.5, 7: 0.25, 0: 2.0}
_PENALTIES = ("repetition", "presence", "frequency")

Penalty = Callable[[np.ndarray, Sequence[int], float], np.ndarray]


def processor_properties(module: ModuleType) -> list[Property]:
    """The properties of a library's ``sample_utils``."""
    file = f"{module.__name__.replace('.', '/')}.py"
    made = ("make_logits_processors*",)
    found = [
        Property(
            f"processors: {name}", file, (f"make_{name}*", *made), partial(_each, module, name)
        )
        for name in _PENALTIES
    ]
    return [*found, Property("processors: together", file, made, partial(_together, module))]


def repetition(logits: np.ndarray, context: Sequence[int], penalty: float) -> np.ndarray:
    """Logits with tokens of the context divided by the penalty if positive, else multiplied."""
    seen = np.isin(np.arange(logits.size), context)
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def presence(logits: np.ndarray, context: Sequence[int], penalty: float) -> np.ndarray:
    """Logits with the penalty subtracted once for each token of the context."""
    return np.asarray(logits - penalty * np.isin(np.arange(logits.size), context))


def frequency(logits: np.ndarray, context: Sequence[int], penalty: float) -> np.ndarray:
    """Logits with the penalty subtracted for each occurrence of a token in the context."""
    return np.asarray(logits - penalty * np.bincount(context, minlength=logits.size))


_RULES: dict[str, Penalty] = dict(zip(_PENALTIES, (repetition, presence, frequency), strict=True))


def _logits() -> np.ndarray:
    """Logits of both signs, some between 0 and 1."""
    sizes = np.arange(_VOCAB, dtype=np.float32) / 2 + 0.25
    return np.asarray(sizes * np.where(np.arange(_VOCAB) % 2, -1, 1), np.float32)


def _off(
    what: str, processors: Sequence[Any], tokens: tuple[int, ...], wanted: np.ndarray
) -> Iterator[str]:
    given: Any = mx.array(_logits())[None]
    for processor in processors:
        given = processor(mx.array(tokens, mx.int32), given)
    got = np.array(given)
    if got.shape != (1, _VOCAB) or not np.abs(got[0] - wanted).max() < _NOISE:
        tokens_off = np.flatnonzero(np.abs(got.reshape(-1, _VOCAB)[0] - wanted) >= _NOISE)
        yield f"{what} after {len(tokens)} tokens: logits of {tokens_off.tolist()} are off"


def _each(module: ModuleType, name: str) -> Iterator[str]:
    """Histories and contexts of each length, with the processor made alone and with all others."""
    rule, make = _RULES[name], getattr(module, f"make_{name}_penalty")
    for size in (None, 1, 3, _CONTEXT, 50):
        own = {} if size is None else {"context_size": size}
        named = {} if size is None else {f"{name}_context_size": size}
        for penalty in (0.7, 2):
            ways = {
                "by itself": [make(penalty, **own)],
                "of all": module.make_logits_processors(**{f"{name}_penalty": penalty}, **named),
            }
            for way, processors in ways.items():
                for count in (0, 1, 2, len(_TOKENS)):
                    tokens = _TOKENS[len(_TOKENS) - count :]
                    context = tokens[-(size or _CONTEXT) :]
                    wanted = rule(_logits(), context, penalty) if count else _logits()
                    yield from _off(f"{name} {way}", processors, tokens, wanted)
    if name == "repetition":
        for wrong in (-0.5, -1):
            try:
                make(wrong)
            except ValueError as error:
                if str(wrong) not in str(error):
                    yield f"a penalty of {wrong} is refused without its value: {error}"
                continue
            yield f"a penalty of {wrong} is taken"


def _together(module: ModuleType) -> Iterator[str]:
    """Only the requested processors: a bias, and penalties on top of it."""
    make = module.make_logits_processors
    nothings: list[dict[str, Any]] = [{}, {"logit_bias": {}}]
    for nothing in (*nothings, {f"{name}_penalty": 0.0 for name in _PENALTIES}):
        if make(**nothing):
            yield f"of {nothing} processors are made"
    biased = _logits()
    biased[list(_BIAS)] += list(_BIAS.values())
    yield from _off("a bias", make(logit_bias=_BIAS), _TOKENS, biased)
    every: dict[str, Any] = {f"{name}_penalty": 1.5 for name in _PENALTIES}
    wanted = biased
    for name in _PENALTIES:
        wanted = _RULES[name](wanted, _TOKENS[-_CONTEXT:], 1.5)
    yield from _off("all", make(logit_bias=_BIAS, **every), _TOKENS, wanted)
