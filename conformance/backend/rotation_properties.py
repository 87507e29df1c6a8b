"""Checks a library's classes of rotary positions against the papers' formulas in numpy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.rotations import (
    CONFIGS,
    LENGTH,
    Formula,
    Turn,
    longrope,
    proportional,
    turned,
    yarn,
)
from conformance.core.properties import Property

# Rows, heads and tokens of an array, whose heads have more elements than are rotated.
_ROWS, _HEADS, _TOKENS, _REST = 3, 2, 5, 4
# The largest error of float32 angles and powers, as a share of the largest element.
_NOISE = 2e-4
# A position at which the slowest pair has made many turns.
_FAR = 100_000


def rotation_properties(module: ModuleType) -> list[Property]:
    """The properties of a library's ``rope_utils``."""
    file = f"{module.__name__.replace('.', '/')}.py"
    made = ("initialize_rope", "*RoPE.*", "*RoPE")
    found = [
        Property("rotations: of each config", file, made, partial(_made, module)),
        Property("rotations: classes by themselves", file, made, partial(_direct, module)),
        Property("rotations: what is refused", file, made, partial(_refused, module)),
    ]
    if hasattr(module, "apply_yarn_mscale"):
        scales = partial(_attention_scales, module)
        found.append(Property("rotations: scale", file, ("apply_yarn_mscale",), scales))
    return found


def turned_off(
    rope: Callable[..., mx.array],
    formula: Callable[[int], Turn],
    dims: int,
    *,
    pairs: bool,
    by_row: bool = True,
) -> Iterator[str]:
    """Where a rotation differs from its formula, with one offset for all rows or one for each.

    Args:
        formula: returns the rotation for the number of positions so far.
    """
    draw = np.random.default_rng(dims)
    for size in (dims, dims + _REST):
        heads = draw.normal(0, 1, (_ROWS, _HEADS, _TOKENS, size)).astype(np.float32)
        given = mx.array(heads)
        for offset in (0, 11, [37, 0, 5])[: 3 if by_row else 2]:
            first = np.broadcast_to(np.array(offset), (_ROWS,))
            wanted = turned(heads, formula(int(first.max()) + _TOKENS), first, pairs=pairs)
            got = rope(given, offset=mx.array(offset) if isinstance(offset, list) else offset)
            away = np.abs(np.array(got) - wanted).max() / np.abs(wanted).max()
            if not away < _NOISE:
                yield f"at offset {offset} of {size} elements it is {away:.1g} off"
        if not mx.array_equal(given, mx.array(heads)):
            yield "what is given is changed"
        half = rope(given.astype(mx.bfloat16), offset=3)
        if half.dtype != mx.bfloat16:
            yield f"of bfloat16 it makes {half.dtype}"
    if not mx.array_equal(rope(given), rope(given, offset=0)):
        yield "without an offset it does not begin at 0"


def _made(module: ModuleType) -> Iterator[str]:
    for formula, config, longest in CONFIGS:
        kind = (config or {}).get("type", (config or {}).get("rope_type", "default"))
        if kind == "dynamic" and not hasattr(module, "DynamicNTKScalingRoPE"):
            continue
        full = {**(config or {}), "max": longest}
        for pairs, base in itertools.product((False, True), (50.0, 5e5)):
            rope = module.initialize_rope(8, base, pairs, config, longest)
            # The class for long sequences has no pairs.
            own = pairs and kind != "longrope"
            part = partial(_of_length, formula, 8, base, full)
            for problem in turned_off(rope, part, 8, pairs=own, by_row=kind != "dynamic"):
                yield f"{config}: {problem}"


def _of_length(
    formula: Formula, dims: int, base: float, config: Mapping[str, Any], last: int
) -> Turn:
    return formula(dims, base, config, last)


def _direct(module: ModuleType) -> Iterator[str]:
    """Cases that configs do not cover: defaults, own scales, the inverse."""
    su, slow, own = module.SuScaledRoPE, module.YarnRoPE, module.ProportionalRoPE
    spread = {"long_factor": 2.0, "short_factor": 1.5}
    wide = {LENGTH: 4096, "max": 131072, "long_factor": 1.0, "short_factor": 1.0}
    near = {LENGTH: 4, "max": 16, **spread}
    cases: list[tuple[str, Any, Formula, float, dict[str, Any]]] = [
        ("SuScaledRoPE(8)", su(8), longrope, 1e4, wide),
        ("SuScaledRoPE of 4 to 16", su(8, 50.0, 16, 4, **spread), longrope, 50.0, near),
        (
            "SuScaledRoPE with scales",
            su(8, 50.0, 16, 4, **spread, long_mscale=1.7, short_mscale=1.2),
            longrope,
            50.0,
            {**near, "long_mscale": 1.7, "short_mscale": 1.2},
        ),
        ("YarnRoPE(8)", slow(8), yarn, 1e4, {"factor": 1.0}),
        ("YarnRoPE of 3", slow(8, scaling_factor=3.0), yarn, 1e4, {"factor": 3.0}),
        (
            "YarnRoPE of magnitude 2",
            slow(8, scaling_factor=math.e, mscale=10.0),
            yarn,
            1e4,
            {"factor": math.e, "mscale": 10.0},
        ),
        ("ProportionalRoPE(8, 8)", own(8, 8), proportional, 1e4, {}),
        ("ProportionalRoPE(8, 4)", own(8, 4), proportional, 1e4, {"partial_rotary_factor": 0.5}),
        ("ProportionalRoPE(8, 2)", own(8, 2), proportional, 1e4, {"partial_rotary_factor": 0.25}),
        ("ProportionalRoPE(8, 0)", own(8, 0), proportional, 1e4, {"partial_rotary_factor": 0.0}),
        (
            "ProportionalRoPE of 2",
            own(8, 6, base=50.0, factor=2.0),
            proportional,
            50.0,
            {"partial_rotary_factor": 0.75, "factor": 2.0},
        ),
    ]
    for name, rope, formula, base, config in cases:
        part = partial(_of_length, formula, 8, base, config)
        for problem in turned_off(rope, part, 8, pairs=False):
            yield f"{name}: {problem}"
        yield from _far_off(name, rope, part(_FAR))
    if "inverse" in slow.__call__.__code__.co_varnames:
        yield from _there_and_back(slow(8, scaling_factor=3.0, mscale=2.0))


def _far_off(name: str, rope: Callable[..., mx.array], turn: Turn) -> Iterator[str]:
    """The slowest pair at a far position, where a slightly wrong base shows."""
    heads = np.ones((1, 1, 1, 8), np.float32)
    wanted = turned(heads, turn, np.array([_FAR]), pairs=False)
    slowest = slice(3, None, 4)
    got = np.array(rope(mx.array(heads), offset=_FAR))[..., slowest]
    if not np.allclose(got, wanted[..., slowest], atol=1e-3):
        yield f"{name}: far away its slowest pair is off"


def _there_and_back(rope: Any) -> Iterator[str]:
    heads = mx.array(np.random.default_rng(1).normal(0, 1, (_ROWS, _HEADS, _TOKENS, 12)))
    back = rope(rope(heads.astype(mx.float32), offset=7), offset=7, inverse=True)
    if not np.allclose(np.array(back), np.array(heads), atol=1e-5):
        yield "YarnRoPE: the inverse does not undo it"
    nowhere = np.array(rope(heads.astype(mx.float32), scale=0.0))[..., :8]
    magnitude = 0.1 * 2.0 * math.log(3.0) + 1.0
    if not np.allclose(nowhere, np.array(heads)[..., :8] * magnitude, atol=1e-5):
        yield "YarnRoPE: positions are left at a scale of 0"


def _refused(module: ModuleType) -> Iterator[str]:
    """Invalid configs must be refused with their name in the error."""
    long = {"type": "longrope", "short_factor": 1.0, "long_factor": 1.0}
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("other", lambda: module.initialize_rope(8, 50.0, False, {"type": "other"}, 64)),
        (
            "got 2",
            lambda: module.initialize_rope(
                8, 50.0, False, {"type": "mrope", "mrope_section": [1, 2]}, 64
            ),
        ),
        ("got 0", lambda: module.initialize_rope(8, 50.0, False, {"type": "mrope"}, 64)),
        ("rotated_dims", lambda: module.ProportionalRoPE(8, 10)),
    ]
    if hasattr(module, "EagerRoPE"):
        make = module.initialize_rope
        length = {"original_max_position_embeddings": 4}
        cases += [
            ("slow", lambda: make(8, 50.0, False, None, 64, "slow")),
            ("eager does not", lambda: make(8, 50.0, False, {"type": "yarn"}, 64, "eager")),
            (f"requires {LENGTH}", lambda: make(8, 50.0, False, long, 64)),
            ("requires max_pos", lambda: make(8, 50.0, False, {**long, **length})),
        ]
    for says, call in cases:
        try:
            call()
        except (ValueError, AssertionError) as error:
            if says not in str(error):
                yield f"it is refused without {says!r}: {error}"
            continue
        yield f"what must be refused with {says!r} is not"


def _attention_scales(module: ModuleType) -> Iterator[str]:
    """The square of YaRN's magnitude for all dimensions, if there is one."""
    squared = (0.1 * 0.7 * math.log(4.0) + 1.0) ** 2
    cases: tuple[tuple[dict[str, Any] | None, float], ...] = (
        (None, 1.0),
        ({}, 1.0),
        ({"mscale_all_dim": 0.7, "factor": 4.0}, 1.0),
        ({"type": "default", "mscale_all_dim": 0.7, "factor": 4.0}, 1.0),
        ({"type": "yarn", "factor": 4.0}, 1.0),
        ({"type": "yarn", "mscale_all_dim": 0.7}, 1.0),
        ({"type": "yarn", "mscale_all_dim": 0.7, "factor": 0.5}, 1.0),
        ({"type": "yarn", "mscale_all_dim": 0.7, "factor": 4.0}, squared),
        ({"rope_type": "yarn", "mscale_all_dim": 0.7, "factor": 4.0}, squared),
        (
            {"type": "yarn", "mscale_all_dim": 0.7, "factor": 1.5},
            (0.07 * math.log(1.5) + 1.0) ** 2,
        ),
    )
    for config, wanted in cases:
        got = module.apply_yarn_mscale(0.3, config)
        if not math.isclose(got, 0.3 * wanted, rel_tol=1e-9):
            yield f"of {config} a scale of 0.3 becomes {got}"
