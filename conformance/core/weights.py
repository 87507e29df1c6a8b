"""Weights that make a tiny model sensitive, the same bits on every platform.

Each parameter has its own counter-based stream, keyed by the seed and the parameter's path: a new
parameter shifts no other. A number is the sum of the four 16-bit lanes of a 64-bit draw, so it is
an exact integer until one multiplication; no platform's ``log`` or ``cos`` takes part.

Why not the usual small initialisation: it makes a model insensitive. Attention is uniform, a
recurrent state decays within a few tokens, one token repeats for ever, and a defect changes
nothing. The rules below keep every part of a model large enough that a defect in it changes the
logits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from conformance.core.errors import FamilyError
from conformance.core.family import Recipe, WeightRule

Shape = tuple[int, ...]

# The sum of four uniform 16-bit lanes: mean 4 * 65535 / 2, variance 4 * (65536**2 - 1) / 12.
_LANE_MEAN = 131070
_LANE_SCALE = 1.0 / math.sqrt((65536**2 - 1) / 3)

# Standard deviation of the logits that the output head aims at: greedy choices vary, and their
# margins are far above rounding.
_LOGIT_STD = 3.0

_EMBEDDINGS = (
    "*embed_tokens.weight",
    "*embed_tokens_per_layer.weight",
    "*embed.weight",
    "*embed_in.weight",
    "*embedding.weight",
    "*embeddings.weight",
    "*embedders.*.weight",
    "*wte.weight",
    "*wpe.weight",
)
_HEADS = (
    "*lm_head",
    "*lm_head.weight",
    "*lm_head.linear.weight",
    "*embed_out.weight",
    "output.weight",
    "*.output.weight",
)
_FINAL_NORMS = (
    "norm.weight",
    "*.norm.weight",
    "*norm_f.weight",
    "*ln_f.weight",
    "*final_norm.weight",
    "*final_layernorm.weight",
    "*final_layer_norm.weight",
    "*embedding_norm.weight",
    "*output_norm.weight",
)

# First match wins; a family's own rules come before these.
_RULES: tuple[WeightRule, ...] = (
    # Recurrences: exp(A_log) is the decay rate. About 0.08 keeps a state for some ten tokens, so
    # that what an early token left there is still seen in the logits, and it cannot explode.
    WeightRule("*A_log", mean=-2.5, std=0.7),
    WeightRule("*recurrent_param", mean=-3.5, std=0.5),
    WeightRule("*dt_bias", std=0.5),
    WeightRule("*dt_proj.bias", std=0.5),
    WeightRule("*.D", mean=1.0, std=0.3),
    # Convolutions feed the recurrences: strong taps, all of them, or their state has no effect.
    WeightRule("*conv*.weight", std=2.0, fan_in=True),
    WeightRule("*.conv_[kv]", mean=0.5, std=0.5),
    # Routing: enough to move choices, not enough to decide them alone.
    WeightRule("*e_score_correction_bias", std=0.1),
    WeightRule("*expert_bias", std=0.1),
    WeightRule("*router_bias", std=0.1),
    # Attention: peaked, so that one token more or less, or one position off, changes what it reads.
    WeightRule("*sink*", std=0.5),
    WeightRule("*[qk]_norm.weight", mean=1.5, std=0.15),
    WeightRule("*[qk]_layernorm.weight", mean=1.5, std=0.15),
    WeightRule("*query_layernorm.weight", mean=1.5, std=0.15),
    WeightRule("*key_layernorm.weight", mean=1.5, std=0.15),
    WeightRule("*.[qk]_weight", mean=1.5, std=0.15),
    WeightRule("*[qk]_proj.weight", std=1.5, fan_in=True),
    WeightRule("*[qk]_b_proj.weight", std=1.5, fan_in=True),
    WeightRule("*embed_q.weight", std=1.5, fan_in=True),
    WeightRule("*attn_query.weight", std=1.5, fan_in=True),
    WeightRule("*attn_key.weight", std=1.5, fan_in=True),
    WeightRule("*qkv*.weight", std=1.5, fan_in=True),
    WeightRule("*Wqkv.weight", std=1.5, fan_in=True),
    WeightRule("*query_key_value.weight", std=1.5, fan_in=True),
    WeightRule("*q_k_v_proj.weight", std=1.5, fan_in=True),
    WeightRule("*c_attn.weight", std=1.5, fan_in=True),
    WeightRule("*W_pack.weight", std=1.5, fan_in=True),
    # Whatever else is additive or multiplicative.
    WeightRule("*bias", std=0.1),
    WeightRule("*norm*", mean=1.0, std=0.1),
)
_VECTOR = WeightRule("*", mean=1.0, std=0.1)
_MATRIX = WeightRule("*", std=1.0, fan_in=True)


def _stream(path: str, *, seed: int) -> np.random.Philox:
    digest = hashlib.sha256(f"{seed}\n{path}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def draw(path: str, shape: Shape, *, seed: int) -> npt.NDArray[np.float64]:
    """Numbers of mean 0 and variance 1 within +-3.47, the same bits on every platform.

    Args:
        path: the parameter's path; with ``seed`` it is the key of the stream.

    Shapes:
        returns ``shape``, float64.
    """
    count = math.prod(shape)
    raw = np.asarray(_stream(path, seed=seed).random_raw(count), dtype=np.uint64)
    total = np.zeros(count, dtype=np.int64)
    for lane in range(4):
        total += ((raw >> np.uint64(16 * lane)) & np.uint64(0xFFFF)).astype(np.int64)
    return np.asarray((total - _LANE_MEAN) * _LANE_SCALE, dtype=np.float64).reshape(shape)


def make_packed(
    path: str, shape: Shape, dtype: npt.DTypeLike, *, seed: int
) -> npt.NDArray[np.unsignedinteger]:
    """Uniform bits for a parameter that holds packed quantized values.

    Shapes:
        returns ``shape``, of the unsigned integer type ``dtype``.
    """
    raw = np.asarray(_stream(path, seed=seed).random_raw(math.prod(shape)), dtype=np.uint64)
    kind = np.dtype(dtype)
    return (raw >> np.uint64(64 - 8 * kind.itemsize)).astype(kind).reshape(shape)


def make_weights(
    shapes: Mapping[str, Shape], recipe: Recipe, *, seed: int
) -> dict[str, npt.NDArray[np.float32]]:
    """A value for each parameter, by the recipe.

    Args:
        shapes: only the parameters that are to be drawn, by path. Tables of integers or of
            frequencies are the caller's to leave out.
        recipe: the family's rules and knobs.
        seed: with a parameter's path it decides that parameter's numbers, and nothing else does.

    Raises:
        FamilyError: a rule of the recipe matches no parameter.

    Shapes:
        each array has the shape that ``shapes`` names, float32.
    """
    return {
        path: _values(path, shapes[path], scale, seed=seed)
        for path, scale in scales(shapes, recipe).items()
    }


def scales(shapes: Mapping[str, Shape], recipe: Recipe) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation that each parameter is drawn with.

    Raises:
        FamilyError: a rule of the recipe matches no parameter.
    """
    for rule in recipe.rules:
        if not any(fnmatchcase(path, rule.match) for path in shapes):
            raise FamilyError(f"weights: the rule {rule.match!r} matches no parameter")
    tied = not any(_matches(path, _HEADS) for path in shapes)
    found = {}
    for path, shape in shapes.items():
        rule = _rule(path, shape, recipe, tied=tied)
        std = rule.std / math.sqrt(_fan_in(path, shape)) if rule.fan_in else rule.std
        found[path] = rule.mean, std
    return found


def _values(
    path: str, shape: Shape, scale: tuple[float, float], *, seed: int
) -> npt.NDArray[np.float32]:
    drawn = draw(path, shape, seed=seed)
    if path.endswith(".signs"):
        # A rotation's sign vector holds -1 and +1 and nothing else.
        return np.where(drawn < 0, -1, 1).astype(np.float32)
    mean, std = scale
    return (mean + std * drawn).astype(np.float32)


def _rule(path: str, shape: Shape, recipe: Recipe, *, tied: bool) -> WeightRule:
    """The rule that draws ``path``: the family's, a knob's, or the first default that matches."""
    own = next((rule for rule in recipe.rules if fnmatchcase(path, rule.match)), None)
    if tied and _is_final_norm(path, shape):
        # A tied head repeats the last token, because an embedding is most like itself. A final
        # norm of mean 0 has random signs, and the likeness is gone. Where the family's own norms
        # are drawn around 0, the library reads them as 1 + w.
        mean = -1.0 if own is not None and own.mean == 0.0 else 0.0
        std = _LOGIT_STD * recipe.logit_scale / (recipe.embedding_std * math.sqrt(shape[0]))
        return WeightRule(path, mean=mean, std=std)
    if own is not None:
        return own
    if len(shape) == 2 and _matches(path, _HEADS):
        return WeightRule(path, std=_LOGIT_STD * recipe.logit_scale, fan_in=True)
    if len(shape) == 2 and _matches(path, _EMBEDDINGS):
        return WeightRule(path, std=recipe.embedding_std)
    for rule in _RULES:
        if fnmatchcase(path, rule.match):
            return rule
    return _VECTOR if len(shape) < 2 else _MATRIX


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _is_final_norm(path: str, shape: Shape) -> bool:
    in_layer = any(part.isdigit() for part in path.split("."))
    return len(shape) == 1 and not in_layer and _matches(path, _FINAL_NORMS)


def _fan_in(path: str, shape: Shape) -> int:
    """How many inputs one output sums: the last axis, or all taps of a convolution."""
    if "conv" in path:
        return math.prod(shape[1:]) or 1
    return shape[-1] if shape else 1
