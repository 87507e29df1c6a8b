"""Checks a library's filters and samplers against definitions in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.random_state import drawing_kept
from conformance.core.properties import Property

Rule = Callable[..., np.ndarray]


def order(logprobs: np.ndarray) -> np.ndarray:
    """The rank of each token, 0 for the likeliest."""
    return np.argsort(np.argsort(-logprobs, axis=-1), axis=-1)


def top_k(logprobs: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` likeliest tokens."""
    return order(logprobs) < k


def min_p(logprobs: np.ndarray, share: float, least: int = 1) -> np.ndarray:
    """Tokens with this share of the likeliest's probability, and the ``least`` likeliest."""
    best = logprobs.max(-1, keepdims=True)
    return np.asarray(np.exp(logprobs - best) >= share) | (order(logprobs) < least)


def top_p(logprobs: np.ndarray, share: float) -> np.ndarray:
    """The fewest of the likeliest tokens that have this share of the probability."""
    probs = np.exp(logprobs.astype(np.float64))
    probs /= probs.sum(-1, keepdims=True)
    above = (probs[..., None, :] * (probs[..., None, :] > probs[..., :, None])).sum(-1)
    return np.asarray(above < share)


def top_n_sigma(logits: np.ndarray, count: float) -> np.ndarray:
    """Tokens within ``count`` standard deviations of the largest logit."""
    wide = logits.astype(np.float64)
    least = wide.max(-1, keepdims=True) - count * wide.std(-1, keepdims=True)
    return np.asarray(wide >= least)


def p_less(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Tokens at least as likely as two draws being equal."""
    probs = np.exp(logits.astype(np.float64) / temperature)
    probs /= probs.sum(-1, keepdims=True)
    return np.asarray(probs >= (probs**2).sum(-1, keepdims=True))


def typical_p(logprobs: np.ndarray, share: float) -> np.ndarray:
    """The fewest tokens with surprise closest to the entropy that have this share."""
    wide = logprobs.astype(np.float64)
    probs = np.exp(wide)
    away = np.abs(-wide + (probs * wide).sum(-1, keepdims=True))
    nearer = (probs[..., None, :] * (away[..., None, :] < away[..., :, None])).sum(-1)
    return np.asarray(nearer < share)


# Tokens of the vocabulary, rows of a batch, and draws of one row.
_VOCAB, _ROWS, _DRAWS = 23, 3, 4000
# The largest error of a share of draws, in standard errors.
_ERRORS = 5.0


def sampler_properties(module: ModuleType) -> list[Property]:
    """The properties of a library's ``sample_utils``; missing filters have none."""
    file = f"{module.__name__.replace('.', '/')}.py"
    found = [
        Property(f"samplers: {name}", file, (name, f"_{name}", f"_{_short(name)}"), check)
        for name, check in {
            **{n: partial(_filtered, module, n, *given) for n, given in _FILTERS.items()},
            "apply_xtc": partial(_xtc, module),
        }.items()
        if hasattr(module, name)
    ]
    if hasattr(module, "apply_min_p"):
        name, more = "samplers: apply_min_p that keeps more", partial(_keeps_more, module)
        found.append(Property(name, file, ("*apply_min_p", "make_sampler"), more))
    if hasattr(module, "apply_typical_p"):
        name, after = "samplers: typical-p after another filter", partial(_typical_after, module)
        found.append(Property(name, file, ("apply_typical_p", "_typical_p"), after))
    made = ("make_sampler*", "clamp_temperature", "categorical_sampling", "greedy_sampler")
    found.append(Property("samplers: make_sampler", file, made, partial(_made, module)))
    if hasattr(module, "top_p_sampling"):
        names = ("top_p_sampling", "clamp_temperature")
        found.append(Property("samplers: top_p_sampling", file, names, partial(_nucleus, module)))
    return [replace(one, problems=partial(_all, one.problems)) for one in found]


def _all(problems: Callable[[], Iterable[str]]) -> list[str]:
    with drawing_kept():  # filters check their arguments while they are traced
        return list(problems())


def _short(name: str) -> str:
    return name.removeprefix("apply_")


def _drawn(seed: int, rows: int = _ROWS, spread: float = 2.0) -> np.ndarray:
    """Logprobs ``[rows, vocab]`` of which no two are equal."""
    scores = np.random.default_rng(seed).normal(0, spread, (rows, _VOCAB))
    return np.asarray(scores - np.log(np.exp(scores).sum(-1, keepdims=True)), np.float32)


Calls = Sequence[tuple[Any, ...]]

# For each filter, its definition, valid arguments, and arguments that must be refused.
_FILTERS: Mapping[str, tuple[Rule, Calls, Calls]] = {
    "apply_top_k": (top_k, ((1,), (2,), (7,), (_VOCAB - 1,)), ((0,), (-1,), (_VOCAB,), (2.0,))),
    "apply_min_p": (
        min_p,
        ((0.3,), (0.07,), (1.0,)),
        ((-0.1,), (1.1,), (2.0,), (0.5, 0), (0.5, 1.5)),
    ),
    "apply_top_p": (top_p, ((0.05,), (0.5,), (0.9,), (0.999,)), ()),
    "apply_top_n_sigma": (top_n_sigma, ((0.0,), (0.7,), (1.5,)), ((-0.1,),)),
    "apply_p_less": (p_less, ((0.5,), (1.0,), (3.0,)), ()),
    "apply_typical_p": (typical_p, ((0.1,), (0.5,), (0.9,)), ((0.0,), (1.1,), (2.0,))),
}


def _stepped(seed: int) -> np.ndarray:
    """As ``_drawn``, with logprobs that a few bits represent exactly."""
    draw = np.random.default_rng(seed)
    return np.stack([draw.permutation(_VOCAB) * -0.25 for _ in range(_ROWS)]).astype(np.float32)


def _filtered(
    module: ModuleType, name: str, rule: Rule, calls: Calls, refused: Calls
) -> Iterator[str]:
    """Rows with each number of axes, alone and together, in two dtypes, and long sums."""
    function = getattr(module, name)
    for seed, arguments in enumerate((*calls, *calls)):
        for given, dtype in ((_drawn(seed), mx.float32), (_stepped(seed), mx.bfloat16)):
            rows = mx.array(given).astype(dtype)
            shapes = ((given, rows), (given[0], rows[0]), (given[:, None], rows[:, None]))
            for shown, array in shapes:
                got = function(array, *arguments)
                if got.dtype != dtype:
                    yield f"{name}{arguments}: {got.dtype} of {dtype}"
                yield from _apart(name, arguments, shown, rule(shown, *arguments), got)
    if calls and name in ("apply_top_p", "apply_typical_p"):
        flat = np.arange(2048, dtype=np.float32)[None] * 2.0**-9 - 9.0
        got = function(mx.array(flat), 0.75)
        kept, wanted = np.isfinite(np.array(got)).sum(), rule(flat, 0.75).sum()
        if abs(int(kept) - int(wanted)) > 2:
            yield f"{name}: {kept} of 2048 tokens are left, by its definition {wanted}"
    if name == "apply_top_p":
        # The first token has exactly half of the probability, so no other token is needed.
        even = np.log(np.array([1.0, 0.5, 0.5], np.float32))
        yield from _apart(name, (0.5,), even, even == 0, function(mx.array(even), 0.5))
    for arguments in refused:
        try:
            function(mx.array(_drawn(0)), *arguments)
        except ValueError as error:
            if str(arguments[-1]) not in str(error):
                yield f"{name}{arguments} is refused without its value: {error}"
            continue
        yield f"{name}{arguments} is not refused"


def _keeps_more(module: ModuleType) -> Iterator[str]:
    """As many likely tokens as requested must stay, even below the share."""
    yield from _filtered(module, "apply_min_p", min_p, ((0.3, 3), (0.9, 2)), ())
    row = _drawn(5, rows=1)
    many = mx.repeat(mx.array(row), _DRAWS, axis=0)
    mx.random.seed(0)
    tokens = module.make_sampler(temp=1.0, min_p=0.9, min_tokens_to_keep=3)(many)
    probs = _softmax(np.where(min_p(row[0], 0.9, 3), row[0], -np.inf))
    yield from shares_off("make_sampler(min_tokens_to_keep=3)", tokens, probs)


def _typical_after(module: ModuleType) -> Iterator[str]:
    """Of the tokens that another filter leaves it keeps those that it keeps of these alone."""
    for seed, share in enumerate((0.3, 0.6)):
        row = _drawn(seed, rows=1)[0]
        left = row >= np.sort(row)[-9]
        wanted = left.copy()
        wanted[left] = typical_p(row[left], share)
        given = np.where(left, row, -np.inf)
        yield from _apart(
            "apply_typical_p", (share,), row, wanted, module.apply_typical_p(mx.array(given), share)
        )


def _apart(
    name: str, arguments: tuple[Any, ...], given: np.ndarray, wanted: np.ndarray, got: mx.array
) -> Iterator[str]:
    array = np.array(got.astype(mx.float32))
    kept = ~np.isneginf(array)
    if array.shape != given.shape or (kept != wanted).any():
        yield f"{name}{arguments} leaves {kept.sum()} tokens, by its definition {wanted.sum()}"
    elif (array[kept] != given[kept]).any():
        yield f"{name}{arguments} changes what it leaves"


def _xtc(module: ModuleType) -> Iterator[str]:
    """XTC removes all tokens above the threshold except the least likely; special tokens stay."""
    for seed in range(4):
        row = _drawn(seed, rows=1)
        probs = np.exp(row)
        threshold = 0.5 * float(np.sort(probs[0])[-4])
        likely = probs > threshold
        least = np.where(likely, probs, np.inf).min()
        special = [int(np.argsort(-probs[0])[1])]
        for tokens in ([], special):
            wanted = ~(likely & (probs > least))
            wanted[:, tokens] = True
            for shape in ((1, _VOCAB), (2, _VOCAB), (1, 1, _VOCAB)):
                given = np.broadcast_to(row, shape)
                got = module.apply_xtc(mx.array(given), 1.0, threshold, tokens)
                yield from _apart("apply_xtc", (threshold, tokens), given, wanted, got)
        untouched = module.apply_xtc(mx.array(row), 0.0, threshold, special)
        yield from _apart("apply_xtc", (0.0,), row, np.ones_like(likely), untouched)
    row = _drawn(0, rows=1)
    likely = mx.array([[0.7, 0.0, 0.0]])
    edge = float(mx.softmax(likely, axis=-1)[0, 1])
    if not mx.array_equal(module.apply_xtc(likely, 1.0, edge, []), likely):
        yield "apply_xtc removes the one token above the threshold"
    mx.random.seed(1)
    cut = [
        bool(np.isneginf(np.array(module.apply_xtc(mx.array(row), 0.2, 0.0, []))).any())
        for _ in range(300)
    ]
    if not 25 <= sum(cut) <= 100:
        yield f"apply_xtc: of 300 with a probability of 0.2, {sum(cut)} are cut"
    for arguments in ((0.5, 0.6), (0.5, -0.1), (1.1, 0.1), (-0.1, 0.1)):
        try:
            module.apply_xtc(mx.array(row), *arguments, [])
        except ValueError:
            continue
        yield f"apply_xtc{arguments} is not refused"
    for arguments in ((0.0, 0.0), (1.0, 0.5)):
        module.apply_xtc(mx.array(row), *arguments, [])


def _shares(tokens: mx.array, vocab: int) -> np.ndarray:
    return np.bincount(np.array(tokens).reshape(-1), minlength=vocab) / tokens.size


def shares_off(what: str, tokens: mx.array, wanted: np.ndarray) -> Iterator[str]:
    """Where the shares of drawn tokens differ from the probabilities."""
    got, count = _shares(tokens, wanted.size), tokens.size
    errors = np.abs(got - wanted) / np.sqrt(np.maximum(wanted * (1 - wanted), 1e-9) / count)
    if (errors > _ERRORS).any() or got[wanted == 0].any():
        yield f"{what}: the shares of the tokens drawn are up to {errors.max():.0f} errors off"


def _softmax(scores: np.ndarray) -> np.ndarray:
    found = np.exp(scores.astype(np.float64) - scores.max())
    return np.asarray(found / found.sum())


def _made(module: ModuleType) -> Iterator[str]:
    """Each option takes effect, in the order of the filters, at a fractional temperature."""
    row = _drawn(5, rows=1)[0]
    many = mx.repeat(mx.array(row)[None], _DRAWS, axis=0)
    rows = _drawn(6)
    if np.array(module.make_sampler()(mx.array(rows))).tolist() != rows.argmax(-1).tolist():
        yield "make_sampler() is not greedy"
    cases: list[tuple[dict[str, Any], np.ndarray]] = [
        ({}, np.ones(row.shape, bool)),
        ({"top_k": 3}, top_k(row, 3)),
        ({"top_k": 1}, top_k(row, 1)),
        ({"min_p": 0.2}, min_p(row, 0.2)),
        ({"min_p": 1.0}, min_p(row, 1.0)),
        ({"top_p": 0.6}, top_p(row, 0.6)),
        ({"top_p": 1.0}, np.ones(row.shape, bool)),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.1}, ~(np.exp(row) > _least(row, 0.1))),
        ({"xtc_probability": 0.0, "xtc_threshold": 0.9}, np.ones(row.shape, bool)),
    ]
    default = 0.0 if hasattr(module, "apply_typical_p") else 0.1
    cases.append(({"xtc_probability": 1.0}, ~(np.exp(row) > _least(row, default))))
    if hasattr(module, "apply_typical_p"):
        cases += [
            ({"top_n_sigma": 0.8}, top_n_sigma(row, 0.8)),
            ({"p_less": True}, p_less(row, 0.8)),
            ({"typical_p": 0.5}, typical_p(row, 0.5)),
            *(({"typical_p": share}, np.ones(row.shape, bool)) for share in (0.0, 1.0)),
        ]
    for number, (options, kept) in enumerate(cases):
        mx.random.seed(number)
        tokens = module.make_sampler(temp=0.8, **options)(many)
        probs = _softmax(np.where(kept, row / 0.8, -np.inf))
        yield from shares_off(f"make_sampler({options})", tokens, probs)
    best = [int(token) for token in np.argsort(-row)[:2]]
    spared = module.make_sampler(
        temp=1.0, xtc_probability=1.0, xtc_threshold=0.1, xtc_special_tokens=best[:1]
    )
    if best[0] not in np.array(spared(many)):
        yield "make_sampler: XTC removes a special token"
    yield from _order_of_filters(module, many, row)
    if hasattr(module, "clamp_temperature"):
        pair = mx.array([0.0, -0.01])
        cold = module.make_sampler(temp=0.001)(mx.repeat(pair[None], _DRAWS, axis=0))
        yield from shares_off("make_sampler(temp=0.001)", cold, _softmax(np.array([0.0, -1.0])))


def _least(row: np.ndarray, threshold: float) -> float:
    probs = np.exp(row)
    return float(probs[probs > threshold].min())


def _order_of_filters(module: ModuleType, many: mx.array, row: np.ndarray) -> Iterator[str]:
    """Top-p comes before top-k: it is a share of all probability, not of the remainder."""
    mx.random.seed(7)
    tokens = module.make_sampler(temp=1.0, top_p=0.6, top_k=2)(many)
    kept = top_p(row, 0.6) & top_k(row, 2)
    yield from shares_off("top-p with top-k", tokens, _softmax(np.where(kept, row, -np.inf)))


def _nucleus(module: ModuleType) -> Iterator[str]:
    """``top_p_sampling`` of unnormalised logits, with each number of axes."""
    likely = _drawn(5, rows=1)[0]
    # Exponentials of the last two are zero and infinite.
    cases = ((0.6, 0.8, 3.0), (0.0, 1.5, 3.0), (1.0, 1.0, 3.0), (0.9, 2.0, 3.0))
    for share, temperature, shift in (*cases, (0.6, 1.0, -200.0), (0.6, 1.0, 200.0)):
        row = likely + np.float32(shift)
        many = mx.repeat(mx.array(row)[None], _DRAWS, axis=0)
        kept = top_p(row / temperature, share) if 0 < share < 1 else np.ones(row.shape, bool)
        probs = _softmax(np.where(kept, row / temperature, -np.inf))
        for shape in ((_DRAWS, row.size), (_DRAWS // 4, 4, row.size)):
            mx.random.seed(3)
            tokens = module.top_p_sampling(many.reshape(shape), share, temperature)
            if tokens.shape != shape[:-1]:
                yield f"top_p_sampling: tokens of shape {tokens.shape} of logits of {shape}"
            yield from shares_off(f"top_p_sampling({share}, {temperature})", tokens, probs)
    keys = [mx.random.key(seed) for seed in (1, 1, 2)]
    one, again, other = (module.top_p_sampling(many, 0.9, 1.0, key=key) for key in keys)
    if not mx.array_equal(one, again) or mx.array_equal(one, other):
        yield "top_p_sampling: the key does not decide which tokens are drawn"
    if (np.array(module.top_p_sampling(many[:2], 0.5, 0.0)) != row.argmax()).any():
        yield "top_p_sampling: without a temperature it is not greedy"
