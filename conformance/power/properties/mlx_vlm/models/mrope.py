"""mlx-vlm's rotations by positions of three axes: time, height and width."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.rotation_properties import turned_off
from conformance.backend.rotations import Turn, powers
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

rope: Any = compat.part("models.rope_utils")

_FILE = "mlx_vlm/models/rope_utils.py"
_DIM, _BASE = 16, 100.0
_HALF = _DIM // 2
_ROWS, _HEADS, _TOKENS = 2, 3, 4
_NOISE = 2e-5
# Sections that fill all pairs, and sections that leave some.
_SECTIONS = ([4, 2, 2], [2, 3, 3], [2, 2, 1], [3, 3, 4])
# Whether a style pairs adjacent elements; otherwise it pairs halves.
_PAIRS = {
    "interleaved": False,
    "chunked": False,
    "sectioned_half_split": False,
    "split_select": True,
    "sectioned_even_odd": True,
}
_SECTIONED = ("sectioned_half_split", "sectioned_even_odd")


def mrope_properties() -> list[Property]:
    """The properties of the rotations of several axes, and of the eager rotation."""
    whole = ("MRoPERotaryEmbedding.*", "MRoPERotaryEmbedding", "*mrope*", "*rotary*", "rotate_*")
    helpers = ("_*position_selector", "_section_*", "_*style", "_*selector", "_cumulative_splits")
    layouts = ("compute_inv_freq", "_needs_even_odd_layout", "_selects_frequency_by_position")
    names = (*whole, *helpers, *layouts, "_uses_even_odd_pairing")
    eager = ("EagerRoPE.*", "EagerRoPE", "_eager_*", "_compiled_eager_rope", "initialize_rope")
    return [
        Property("mrope: heads", _FILE, names, _heads),
        Property("mrope: angles", _FILE, names, _angles),
        Property("mrope: sections in any order", _FILE, names, _selected),
        Property("mrope: settings", _FILE, names, _settings),
        Property("mrope: eager", _FILE, eager, _eager),
    ]


def axes_of(style: str, sections: Sequence[int], pairs: int = _HALF) -> np.ndarray:
    """Which axis turns each pair: in turns of three while a section lasts, or one after another."""
    found = np.zeros(pairs, int)
    if style == "interleaved":
        for axis in (1, 2):
            found[axis : 3 * sections[axis] : 3] = axis
        return found
    ends = np.cumsum(sections)
    for axis in (1, 2):
        found[ends[axis - 1] : ends[axis]] = axis
    return found


def _positions(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 40, (3, _ROWS, _TOKENS))


def _turned(heads: np.ndarray, angles: np.ndarray, *, pairs: bool) -> np.ndarray:
    """Heads ``[rows, heads, tokens, size]`` rotated by angles ``[rows, tokens, pairs]``."""
    count, wide = angles.shape[-1], heads.astype(np.float64)
    even, odd = slice(0, 2 * count, 2), slice(1, 2 * count, 2)
    one, two = (even, odd) if pairs else (slice(count), slice(count, 2 * count))
    x, y, turn = wide[..., one].copy(), wide[..., two].copy(), angles[:, None]
    wide[..., one] = x * np.cos(turn) - y * np.sin(turn)
    wide[..., two] = y * np.cos(turn) + x * np.sin(turn)
    return wide


def _wanted_angles(positions: np.ndarray, axes: np.ndarray) -> np.ndarray:
    chosen = (
        positions[axes]
        if positions.ndim == 3
        else np.broadcast_to(positions, (axes.size, *positions.shape))
    )
    return np.asarray(np.moveaxis(chosen, 0, -1) * powers(_DIM, _BASE))


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(0, 1, shape).astype(np.float32)


def _off(what: str, got: mx.array, wanted: np.ndarray, noise: float = _NOISE) -> Iterator[str]:
    array = np.array(got.astype(mx.float32))
    if array.shape != wanted.shape or not np.abs(array - wanted).max() < noise * 40:
        yield f"{what}: not as by its definition"


def _heads() -> Iterator[str]:
    """Queries and keys larger than the rotation, by each style."""
    for (style, pairs), sections, more in itertools.product(_PAIRS.items(), _SECTIONS, (0, 6)):
        if style in _SECTIONED and sum(sections) != _HALF:
            continue
        made = rope.MRoPERotaryEmbedding(_DIM, base=_BASE, mrope_section=sections, style=style)
        queries = _drawn(_ROWS, _HEADS, _TOKENS, _DIM + more)
        keys = _drawn(_ROWS, 1, _TOKENS, _DIM + more) * 2
        for positions in (_positions(1), _positions(2)[0]):
            if positions.ndim == 2 and style in _SECTIONED:
                continue
            angles = _wanted_angles(positions, axes_of(style, sections))
            ids = mx.array(positions)
            got = made.apply_rotary(mx.array(queries), mx.array(keys), ids)
            for name, heads, one in zip(("queries", "keys"), (queries, keys), got, strict=True):
                what = f"{name} of {style} {sections}, {positions.ndim} axes, {more} more"
                yield from _off(what, one, _turned(heads, angles, pairs=pairs))
            yield from _as_given(made, queries, keys, ids, angles, pairs=pairs)


def _as_given(
    made: Any, queries: np.ndarray, keys: np.ndarray, ids: mx.array, angles: np.ndarray, **by: bool
) -> Iterator[str]:
    """Dtypes are kept if requested; heads may be on a different axis."""
    given = mx.array(queries).astype(mx.bfloat16), mx.array(keys).astype(mx.float16)
    kept = made.apply_rotary(*given, ids)
    if [one.dtype for one in kept] != [one.dtype for one in given]:
        yield f"{made.style}: {given[0].dtype} becomes {kept[0].dtype}"
    if made.style in _SECTIONED:
        return
    exact = rope.MRoPERotaryEmbedding(
        _DIM, base=_BASE, mrope_section=made.mrope_section, style=made.style, cast_output=False
    )
    wide = exact.apply_rotary(*given, ids, cast_output=False)
    if {one.dtype for one in wide} != {mx.float32}:
        yield f"{made.style}: what is not to be cast is {wide[0].dtype}"
    across = [mx.array(x).swapaxes(1, 2) for x in (queries, keys)]
    got = made.apply_rotary(*across, ids, unsqueeze_dim=2)
    for one, heads in zip(got, (queries, keys), strict=True):
        yield from _off(
            f"{made.style} across", one.swapaxes(1, 2), _turned(heads, angles, pairs=by["pairs"])
        )


def _angles() -> Iterator[str]:
    """Cosines and sines of each style, and their scale."""
    for style, sections in itertools.product(_PAIRS, _SECTIONS):
        made = rope.MRoPERotaryEmbedding(
            _DIM, base=_BASE, mrope_section=sections, style=style, attention_scaling=1.5
        )
        for positions in (_positions(3), _positions(3)[1]):
            axes = axes_of(style, sections)
            angles = (
                positions[..., None] * powers(_DIM, _BASE)
                if style in _SECTIONED
                else _wanted_angles(positions, axes)
            )
            both = np.concatenate([angles, angles], axis=-1)
            for dtype in (mx.float32, mx.bfloat16):
                got = made(mx.zeros((1,), dtype), mx.array(positions))
                if {one.dtype for one in got} != {dtype}:
                    yield f"{style}: cosines are {got[0].dtype} for {dtype}"
                noise = _NOISE if dtype == mx.float32 else 1e-3
                yield from _off(f"{style} cosines", got[0], np.cos(both) * 1.5, noise)
                yield from _off(f"{style} sines", got[1], np.sin(both) * 1.5, noise)
            layout = mx.array(_drawn(3, _ROWS, _TOKENS, _HALF))
            chosen = rope.apply_mrope_frequency_layout(layout, sections, style=style)
            if style not in _SECTIONED:
                at = np.array(layout)[axes, :, :, np.arange(_HALF)]
                yield from _off(f"{style} layout", chosen, np.moveaxis(at, 0, -1))
            elif not mx.array_equal(chosen, layout):
                yield f"{style}: a layout is chosen before heads are turned"
            again = rope.compute_mrope_frequencies(
                mx.array(positions), rope.compute_inv_freq(_DIM, _BASE), sections, style=style
            )
            yield from _off(f"{style} frequencies", again, angles)
    wide = rope.MRoPERotaryEmbedding(_DIM, cast_output=False)
    if wide(mx.zeros((1,), mx.bfloat16), mx.array(_positions(1)))[0].dtype != mx.float32:
        yield "cosines that are not to be cast are"


def _selected() -> Iterator[str]:
    """Alternating sections and their axes, and adjacent elements rotated by them."""
    ids, inverse = _positions(4), powers(_DIM, _BASE)
    for sections, axes, turns in (
        ([3, 3, 2], (1, 2, 0), (0, 1)),
        ([2, 3, 3], (0, 1, 2), (2, 1)),
        ([4, 2, 2], (0, 2, 1), ()),
    ):
        selectors = rope.mrope_section_selectors(sections, axes, interleave_sections=turns)
        starts = np.cumsum([0, *sections])
        in_turn = [(s, i) for i in range(sections[turns[0]] if turns else 0) for s in turns]
        rest = [(s, i) for s in range(3) if s not in turns for i in range(sections[s])]
        order = [(axes[s], starts[s] + i) for s, i in (*in_turn, *rest)]
        if [tuple(pair) for pair in zip(*(s.tolist() for s in selectors), strict=True)] != order:
            yield f"sections {sections} of {axes}, {turns} in turn, are not in their order"
            continue
        got = rope.compute_selected_mrope_cos_sin(mx.array(ids), mx.array(inverse), *selectors)
        chosen = np.stack([ids[axis] * inverse[at] for axis, at in order], axis=-1)
        doubled = np.repeat(chosen, 2, axis=-1)
        yield from _off(f"cosines of {sections}", got[0], np.cos(doubled))
        yield from _off(f"sines of {sections}", got[1], np.sin(doubled))
        yield from _neighbours(chosen, got)
    for wrong in (([1, 2, 3], (0, 1), ()), ([1, 2, 3], (0, 1, 2), (0, 1))):
        try:
            rope.mrope_section_selectors(wrong[0], wrong[1], interleave_sections=wrong[2])
        except ValueError:
            continue
        yield f"sections {wrong} are taken"


def _neighbours(angles: np.ndarray, full: tuple[mx.array, mx.array]) -> Iterator[str]:
    queries = _drawn(_ROWS, _HEADS, _TOKENS, _DIM + 2)
    keys = _drawn(_ROWS, 1, _TOKENS, _DIM + 2)
    both = np.concatenate([angles, angles], axis=-1)
    halves = mx.array(np.cos(both)), mx.array(np.sin(both))
    given = mx.array(queries), mx.array(keys)
    for layout, (cos, sin) in {"half": halves, "full": full, "": halves}.items():
        options = {"cos_layout": layout} if layout else {}
        got = rope.apply_rotary_pos_emb_even_odd(*given, cos, sin, **options)
        for one, heads in zip(got, (queries, keys), strict=True):
            yield from _off(f"neighbours of {layout}", one, _turned(heads, angles, pairs=True))
        low = [one.astype(mx.bfloat16) for one in given]
        again = rope.apply_rotary_pos_emb_even_odd(*low, cos, sin, **options)
        if again[0].dtype != mx.bfloat16 or again[1].dtype != mx.bfloat16:
            yield f"neighbours of {layout}: bfloat16 becomes {again[0].dtype}"


def _settings() -> Iterator[str]:
    """The source of sections, the default without them, and refused settings."""
    own, other = {"mrope_section": [1, 2, 3]}, {"mrope_section": [4, 5, 6]}
    cases: tuple[tuple[dict[str, Any], list[int]], ...] = (
        ({}, [24, 20, 20]),
        ({"default": (7, 8)}, [7, 8]),
        ({"rope_scaling": own}, [1, 2, 3]),
        ({"rope_parameters": own, "rope_scaling": other}, [1, 2, 3]),
        ({"rope_parameters": {"mrope_section": []}, "rope_scaling": other}, [4, 5, 6]),
    )
    for given, wanted in cases:
        if (got := rope.get_mrope_section(**given)) != wanted:
            yield f"the sections of {given} are {got}"
    plain = rope.MRoPERotaryEmbedding(_DIM)
    said = [plain.dim, plain.max_position_embeddings, plain.base, plain.style, plain.mrope_section]
    if said != [_DIM, 2048, 10000, "interleaved", [24, 20, 20]]:
        yield f"without settings they are {said}"
    of_config = rope.MRoPERotaryEmbedding(
        _DIM, 77, 5.0, rope_parameters=own, rope_scaling=other, style="chunked"
    )
    said = [of_config.max_position_embeddings, of_config.base, of_config.mrope_section]
    if said != [77, 5.0, [1, 2, 3]]:
        yield f"of a config they are {said}"
    only = rope.MRoPERotaryEmbedding(_DIM, rope_scaling=other)
    if only.mrope_section != [4, 5, 6]:
        yield f"of a scaling the sections are {only.mrope_section}"
    yield from _off("frequencies", plain.inv_freq, powers(_DIM, 10000))
    yield from _refused()


def _refused() -> Iterator[str]:
    one = mx.zeros((1, 1, 1, _DIM))
    axes = mx.zeros((3, 1, 1, _DIM))
    for sections in (None, [4, 4]):
        try:
            rope.apply_multimodal_rotary_pos_emb(
                one, one, axes, axes, mrope_section=sections, style="sectioned_half_split"
            )
        except ValueError as error:
            if "section" not in str(error):
                yield f"sections {sections} are refused without their name: {error}"
            continue
        yield f"sections {sections} are taken"


def _same(turn: Turn, _: int) -> Turn:
    return turn


def _eager() -> Iterator[str]:
    """The eager rotation equals the rotation in one kernel."""
    for pairs, scale in itertools.product((False, True), (1.0, 0.25)):
        config = {"type": "linear", "factor": 1 / scale} if scale != 1.0 else None
        both = (
            rope.EagerRoPE(8, pairs, 50.0, scale),
            rope.initialize_rope(8, 50.0, pairs, config, 64, "eager"),
        )
        for made in both:
            if type(made).__name__ != "EagerRoPE":
                yield f"it is a {type(made).__name__}"
            said = made.dims, made.traditional, made.base, made.scale
            if said != (8, pairs, 50.0, scale):
                yield f"its settings are {said}"
            turn = Turn(powers(8, 50.0) * scale)
            yield from turned_off(made, partial(_same, turn), 8, pairs=pairs)
    plain = rope.EagerRoPE(8)
    if plain.base != 10000:
        yield f"without settings its base is {plain.base}"
    yield from turned_off(plain, lambda _: Turn(powers(8, 1e4)), 8, pairs=False)
