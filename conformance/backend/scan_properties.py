"""Checks a library's recurrent scans against their recurrences in numpy, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property

_ROWS, _SIZE, _STATE = 3, 5, 4
_NOISE = 2e-5


def state_space_properties(ssm: ModuleType) -> list[Property]:
    """The properties of a library's ``ssm``."""
    names = ("ssm_attn*", "ssm_update", "segsum", "compute_dt")
    file = f"{ssm.__name__.replace('.', '/')}.py"
    return [
        Property("scans: state space", file, names, partial(_state_space, ssm)),
        Property("scans: padding", file, names, partial(_padded, ssm)),
        Property("scans: padding behind", file, names, partial(_padded_behind, ssm)),
    ]


def delta_rule_properties(delta: ModuleType) -> list[Property]:
    """The properties of a library's ``gated_delta``."""
    names = ("gated_delta_*", "_gated_delta_step_ops", "compute_*", "normalize_qk")
    file = f"{delta.__name__.replace('.', '/')}.py"
    return [
        Property("scans: delta rule", file, names, partial(_delta_rule, delta)),
        Property("scans: what goes with it", file, names, partial(_beside, delta)),
    ]


def _far(what: str, got: mx.array, wanted: np.ndarray, noise: float = _NOISE) -> Iterator[str]:
    array = np.array(got.astype(mx.float32))
    if array.shape != wanted.shape:
        yield f"{what}: {array.shape}, not {wanted.shape}"
    elif not np.abs(array - wanted).max() <= noise * (1 + np.abs(wanted).max()):
        yield f"{what}: not what the recurrence gives"


def _arrays(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.normal(0, 1, s).astype(np.float32) for name, s in shapes.items()}


def state_space(
    given: dict[str, np.ndarray],
    state: np.ndarray | None,
    limits: tuple[float, float],
    real: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence of Mamba-2 (arXiv 2405.21060): outputs and the last states.

    Args:
        real: which steps count, ``[rows, tokens]``; others do not change the state.
    """
    x, heads = given["x"].astype(np.float64), given["A"].size
    each = heads // given["B"].shape[2]
    step = np.clip(np.logaddexp(0, given["dt"] + given["bias"]), *limits)
    b, c = (np.repeat(given[name], each, axis=2) for name in "BC")
    now = np.zeros((*x.shape[:1], *x.shape[2:], b.shape[-1])) if state is None else state
    out = np.zeros(x.shape)
    for t in range(x.shape[1]):
        decay = np.exp(-np.exp(given["A"]) * step[:, t])[..., None, None]
        new = decay * now + (step[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        now = np.where(real[:, t, None, None, None], new, now)
        out[:, t] = (now * c[:, t, :, None]).sum(-1) + given["D"][:, None] * x[:, t]
    return out, now


def _space(seed: int, tokens: int, heads: int, groups: int) -> dict[str, np.ndarray]:
    return _arrays(
        seed,
        x=(_ROWS, tokens, heads, _SIZE),
        A=(heads,),
        B=(_ROWS, tokens, groups, _STATE),
        C=(_ROWS, tokens, groups, _STATE),
        D=(heads,),
        dt=(_ROWS, tokens, heads),
        bias=(heads,),
        state=(_ROWS, heads, _SIZE, _STATE),
    )


def _called(
    call: Callable[..., Any],
    given: dict[str, np.ndarray],
    dtype: mx.Dtype = mx.float32,
) -> Any:
    names = ("x", "A", "B", "C", "D", "dt", "bias")
    return call(*(mx.array(given[name]).astype(dtype) for name in names))


def _state_space(module: ModuleType) -> Iterator[str]:
    """One step and many, in pieces, with and without an initial state, with shared groups."""
    for tokens, (heads, groups), kept in itertools.product(
        (1, 4, 9), ((4, 2), (2, 2), (3, 1)), (False, True)
    ):
        given = _space(tokens, tokens, heads, groups)
        real = np.ones((_ROWS, tokens), bool)
        state = given["state"] if kept else None
        for limits in ((0.001, 100.0), (0.6, 0.9)):
            wanted = state_space(given, state, limits, real)
            options = {} if limits[1] == 100.0 else {"time_step_limit": limits}
            begun = None if state is None else mx.array(state)
            calls = {
                "ssm_update": partial(module.ssm_update, state=begun, **options),
                "ssm_attn": partial(module.ssm_attn, state=begun, **options),
                "ssm_attn of 4": partial(module.ssm_attn, state=begun, step=4, **options),
            }
            for name, call in calls.items():
                got = _called(call, given)
                what = f"{name} of {tokens} tokens, {heads} heads of {groups}, {limits}"
                yield from _far(f"{what}, outputs", got[0], wanted[0])
                yield from _far(f"{what}, state", got[1], wanted[1])
    half = _called(module.ssm_update, _space(0, 4, 4, 2), mx.bfloat16)
    if half[0].dtype != mx.bfloat16 or half[1].dtype != mx.float32:
        yield f"of bfloat16 outputs are {half[0].dtype}, states {half[1].dtype}"
    tiny = _space(3, 2, 2, 1)
    tiny["dt"] = tiny["dt"] - 30
    large = {**tiny, "dt": tiny["dt"] + 330}
    for name, given in (("small", tiny), ("large", large)):
        wanted = state_space(given, None, (0.001, 100.0), np.ones((_ROWS, 2), bool))
        for call in (module.ssm_update, module.ssm_attn):
            yield from _far(f"of {name} time steps", _called(call, given)[0], wanted[0])
    long = _space(4, 300, 1, 1)
    wanted = state_space(long, None, (0.001, 100.0), np.ones((_ROWS, 300), bool))
    got = _called(module.ssm_attn, long)
    yield from _far("of 300 tokens", got[0], wanted[0], 1e-4)
    yield from _far("of 300 tokens, state", got[1], wanted[1], 1e-4)
    cut = _called(partial(module.ssm_attn, step=256), long)
    if not all(mx.array_equal(x, y) for x, y in zip(got, cut, strict=True)):
        yield "without a size its pieces are not of 256 tokens"


def _padded(module: ModuleType) -> Iterator[str]:
    """Shorter rows: padded on the left, like prompts, or on the right, with their lengths."""
    for tokens, step, behind in itertools.product((4, 9), (4, 256), (False, True)):
        if not behind or tokens <= step:
            yield from _rows_padded(module, tokens, step, behind=behind, begun=False)
    given = _space(1, 4, 4, 2)
    options = {"mask": mx.array(np.arange(4) < np.array([[4], [2], [1]]))}
    options["lengths"] = mx.array([4, 2, 1])
    both = [_called(partial(f, **options), given) for f in (module.ssm_update, module.ssm_attn)]
    if not all(mx.array_equal(x, y) for x, y in zip(*both, strict=True)):
        yield "ssm_update leaves out padding or lengths"
    ended = {"state": mx.array(given["state"]), "lengths": mx.array([-1, -1, -1])}
    got = _called(partial(module.ssm_attn, **ended), given)
    yield from _far("the state of rows that have ended", got[1], given["state"])


def _padded_behind(module: ModuleType) -> Iterator[str]:
    """As ``_padded``, on the right, from an existing state: in pieces, or from the beginning."""
    for tokens, step, begun in itertools.product((4, 9), (4, 256), (False, True)):
        yield from _rows_padded(module, tokens, step, behind=True, begun=begun)


def _rows_padded(
    module: ModuleType, tokens: int, step: int, *, behind: bool, begun: bool
) -> Iterator[str]:
    given = _space(tokens + 7, tokens, 4, 2)
    lengths = np.array([tokens, tokens - 2, 1])
    at = np.arange(tokens)[None]
    real = at < lengths[:, None] if behind else at >= tokens - lengths[:, None]
    state = given["state"] if begun else None
    wanted = state_space(given, state, (0.001, 100.0), real)
    more = {"lengths": mx.array(lengths)} if behind else {}
    if begun:
        more["state"] = mx.array(given["state"])
    got = _called(partial(module.ssm_attn, step=step, mask=mx.array(real), **more), given)
    where = "behind" if behind else "before"
    what = f"{tokens} tokens in pieces of {step}, padding {where}, {'a' if begun else 'no'} state"
    shown = np.where(real[..., None, None], np.array(got[0]), wanted[0])
    yield from _far(f"{what}: outputs", mx.array(shown), wanted[0])
    yield from _far(f"{what}: its end", got[1], wanted[1])


def delta_rule(
    given: dict[str, np.ndarray], decay: np.ndarray, beta: np.ndarray, real: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule (arXiv 2412.06464): outputs, and the state after each step."""
    each = given["v"].shape[2] // given["k"].shape[2]
    q, k = (np.repeat(given[name].astype(np.float64), each, axis=2) for name in "qk")
    now, outputs, states = given["state"].astype(np.float64), [], []
    for t in range(q.shape[1]):
        faded = now * (decay[:, t, :, None, None] if decay.ndim == 3 else decay[:, t, :, None])
        error = given["v"][:, t] - (faded * k[:, t, :, None]).sum(-1)
        new = faded + (beta[:, t, :, None] * error)[..., None] * k[:, t, :, None]
        outputs.append((new * q[:, t, :, None]).sum(-1))
        now = np.where(real[:, t, None, None, None], new, now)
        states.append(now)
    return np.stack(outputs, 1), np.stack(states, 1)


def _rule(seed: int, tokens: int, heads: int, keys: int, *, vector: bool) -> dict[str, np.ndarray]:
    gate = (_ROWS, tokens, heads, _STATE) if vector else (_ROWS, tokens, heads)
    found = _arrays(
        seed,
        q=(_ROWS, tokens, keys, _STATE),
        k=(_ROWS, tokens, keys, _STATE),
        v=(_ROWS, tokens, heads, _SIZE),
        a=gate,
        b=(_ROWS, tokens, heads),
        A=(heads, 1) if vector else (heads,),
        bias=(heads, _STATE) if vector else (heads,),
        state=(_ROWS, heads, _SIZE, _STATE),
    )
    return {n: x * 0.5 if n in "qk" else x for n, x in found.items()}


def _gates(given: dict[str, np.ndarray], bound: float | None) -> np.ndarray:
    """The decay of each step: from a softplus, or bounded by a sigmoid."""
    rate, at = np.exp(given["A"].astype(np.float64)), given["a"] + given["bias"]
    if bound is None:
        return np.asarray(np.exp(-rate * np.logaddexp(0, at)))
    return np.asarray(np.exp(bound / (1 + np.exp(-rate * at))))


def _delta_rule(module: ModuleType) -> Iterator[str]:
    options = module.gated_delta_update.__code__.co_varnames
    for tokens, (heads, keys), vector, bound in itertools.product(
        (1, 6), ((4, 2), (2, 2)), (False, True), (None, -2.0)
    ):
        given = _rule(tokens, tokens, heads, keys, vector=vector)
        names = ("q", "k", "v", "a", "b", "A", "bias")
        arrays = [mx.array(given[name]) for name in names]
        real = np.arange(tokens) >= np.array([[0], [2], [4]])
        what = f"{tokens} tokens, {heads} heads of {keys}, gates of {given['a'].ndim} axes, {bound}"
        for padded, begun in itertools.product((False, True), (False, True)):
            own = given if begun else {**given, "state": given["state"] * 0}
            counted = real if padded else np.ones_like(real)
            beta = 1 / (1 + np.exp(-given["b"].astype(np.float64)))
            more: dict[str, Any] = {
                "state": mx.array(own["state"]) if begun else None,
                "mask": mx.array(real) if padded else None,
                "lower_bound": bound,
            }
            twice = [1.0, 2.0] if "allow_neg_eigval" in options else [1.0]
            for times in twice:
                if times == 2.0:
                    more["allow_neg_eigval"] = True
                wanted = delta_rule(own, _gates(own, bound), beta * times, counted)
                got = module.gated_delta_update(*arrays, **more)
                shown = np.where(counted[..., None, None], np.array(got[0]), wanted[0])
                yield from _far(f"{what}: outputs", mx.array(shown), wanted[0])
                yield from _far(f"{what}: state", got[1], wanted[1][:, -1])
            if "state_steps" in options:
                yield from _steps(module, arrays, more, wanted[1])


def _steps(
    module: ModuleType, arrays: list[mx.array], more: dict[str, Any], states: np.ndarray
) -> Iterator[str]:
    """The states after the first steps, to which rejected drafts return."""
    tokens = states.shape[1]
    for count in {1, tokens}:
        got = module.gated_delta_update(*arrays, **more, state_steps=count)
        yield from _far(f"the last state of {count} kept", got[1], states[:, -1])
        yield from _far(f"{count} states", got[2], states[:, :count])
    for wrong in (0, tokens + 1):
        try:
            module.gated_delta_update(*arrays, **more, state_steps=wrong)
        except ValueError:
            continue
        yield f"{wrong} states of {tokens} steps are taken"


def _beside(module: ModuleType) -> Iterator[str]:
    """Dtypes, gates of an unknown shape, a default state, and normalised lengths."""
    given = _rule(5, 3, 4, 2, vector=False)
    q, k, v, a, b = (mx.array(given[n]).astype(mx.bfloat16) for n in ("q", "k", "v", "a", "b"))
    rest = mx.array(given["A"]), mx.array(given["bias"]).astype(mx.bfloat16)
    got = module.gated_delta_update(q, k, v, a, b, *rest)
    if (got[0].dtype, got[1].dtype) != (mx.bfloat16, mx.float32):
        yield f"of bfloat16 outputs are {got[0].dtype}, states {got[1].dtype}"
    gates = mx.ones((_ROWS, 3, 4)), mx.ones((_ROWS, 3, 4))
    own = module.gated_delta_ops(*(x.astype(mx.float32) for x in (q, k, v)), *gates)
    if own[1].dtype != mx.float32 or own[1].shape != (_ROWS, 4, _SIZE, _STATE):
        yield f"a state of its own is {own[1].shape}, {own[1].dtype}"
    try:
        module.gated_delta_ops(q, k, v, mx.ones((_ROWS, 3)), gates[1])
    except ValueError as error:
        if "gating" not in str(error):
            yield f"gates of no known shape are refused without their name: {error}"
    else:
        yield "gates of no known shape are taken"
    if hasattr(module, "normalize_qk"):
        wide = mx.array(given["q"] * 3)
        one, two = module.normalize_qk(wide, wide * 2, inv_scale=0.5, eps=0.1)
        for found, heads, scale in ((one, given["q"] * 3, 0.5), (two, given["q"] * 6, 1.0)):
            length = np.sqrt((heads**2).sum(-1, keepdims=True) + 0.1)
            yield from _far("heads of length one", found, heads / length * scale)
