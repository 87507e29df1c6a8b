"""When mlx-vlm's recurrent scans use Metal kernels, and with which arguments and states.

Stand-ins for the kernels return their arguments, so Metal is not needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.patching import replace, together
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.models.sparse import WithMetal

delta: Any = compat.part("models.gated_delta")
ssm: Any = compat.part("models.ssm")

_ROWS, _HEADS, _VALUES, _NOISE = 2, 4, 3, 1e-5
# Other machines: a device, and whether it has Metal.
_MACHINES = ((mx.gpu, True), (mx.cpu, True), (mx.gpu, False))


def kernel_properties() -> list[Property]:
    """The properties of ``gated_delta_update`` and ``ssm_update``."""
    rule = "mlx_vlm/models/gated_delta.py", ("gated_delta_update*", "compute_g*")
    space = "mlx_vlm/models/ssm.py", ("ssm_update",)
    return [
        Property("delta: by Metal", *rule, _delta),
        Property("delta: a cache's states", *rule, _cached),
        Property("delta: state space by Metal", *space, _state_space),
    ]


def _drawn(tokens: int, width: int, keys: int = 2) -> dict[str, mx.array]:
    draw = np.random.default_rng(width)
    shapes = {
        **dict.fromkeys("qk", (_ROWS, tokens, keys, width)),
        "v": (_ROWS, tokens, _HEADS, _VALUES),
        **dict.fromkeys("ab", (_ROWS, tokens, _HEADS)),
        **dict.fromkeys(("A_log", "dt_bias"), (_HEADS,)),
    }
    return {name: mx.array(draw.normal(0, 1, s).astype("f")) for name, s in shapes.items()}


def _gates(given: dict[str, mx.array]) -> tuple[np.ndarray, np.ndarray]:
    """The share of a state that is kept at each step, and the share of an error written."""
    arrays = {name: np.array(array).astype(np.float64) for name, array in given.items()}
    rate = np.logaddexp(0, arrays["a"] + arrays["dt_bias"])
    return np.exp(-np.exp(arrays["A_log"]) * rate), 1 / (1 + np.exp(-arrays["b"]))


def _delta() -> Iterator[str]:
    """Whole groups of 32 keys use the kernel, unless the caller refuses; with all arguments."""
    widths = (16, 32, 48, 64)
    for (device, metal), width, wanted in itertools.product(_MACHINES, widths, (None, True, False)):
        given = _drawn(3, width)
        run: list[tuple[Any, ...]] = []
        plain: list[tuple[Any, ...]] = []
        options = {} if wanted is None else {"use_kernel": wanted}
        begun = mx.ones((_ROWS, _HEADS, _VALUES, width)) if wanted else None
        mask = mx.ones((_ROWS, 3)) if wanted else None
        with together(
            replace(delta, "mx", WithMetal(device=device, metal=metal)),
            replace(delta, "gated_delta_kernel", lambda *args, run=run: run.append(args)),
            replace(delta, "gated_delta_ops", lambda *args, plain=plain: plain.append(args)),
        ):
            delta.gated_delta_update(**given, state=begun, mask=mask, state_steps=2, **options)
        fit = device == mx.gpu and metal and width % 32 == 0 and wanted is not False
        if (len(run), len(plain)) != (fit, not fit):
            yield f"{width} keys on {device}, Metal {metal}, {options}: {len(run)} kernels are run"
            continue
        yield from _arguments_off((run or plain)[0], given, begun, mask)


def _arguments_off(
    got: tuple[Any, ...], given: dict[str, mx.array], begun: Any, mask: Any
) -> Iterator[str]:
    if any(array is not given[name] for array, name in zip(got[:3], "qkv", strict=True)):
        yield "a kernel gets others than queries, keys and values"
    for what, array, want in zip(("decay", "share"), got[3:5], _gates(given), strict=True):
        if array.shape != want.shape or not np.allclose(np.array(array), want, atol=_NOISE):
            yield f"a kernel gets {what} {array}"
    state = got[5]
    if begun is not None and state is not begun:
        yield "a kernel gets another state"
    shape = (_ROWS, _HEADS, _VALUES, given["q"].shape[-1])
    if begun is None and (state.shape != shape or state.dtype != mx.float32 or state.any()):
        yield f"a kernel begins with {state.shape}, {state.dtype}"
    if got[6] is not mask or got[7] != 2:
        yield f"a kernel gets {got[6:]}"


class _States:
    """A cache that owns recurrent states."""

    def __init__(self, initial: mx.array, steps: int | None) -> None:
        self._given = initial, steps
        self.asked: list[tuple[int, int]] = []

    def update_recurrent(self, index: int, tokens: int, compute: Any) -> Any:
        """Update the state like the library's caches."""
        self.asked.append((index, tokens))
        return compute(*self._given)


def _cached() -> Iterator[str]:
    """The cache alone decides from which state to start, and how many are kept."""
    given, mask = _drawn(3, 4), mx.array([[True] * 3, [False, True, True]])
    state = mx.ones((_ROWS, _HEADS, _VALUES, 4))
    for steps, bound, (index, more) in itertools.product(
        (None, 2), (None, -2.0), ((1, {}), (3, {"cache_index": 3}))
    ):
        options = {"mask": mask, "lower_bound": bound}
        cache = _States(state, steps)
        got = delta.gated_delta_update(**given, cache=cache, **options, **more)
        want = delta.gated_delta_update(**given, state=state, state_steps=steps, **options)
        if len(got) != len(want) or not all(map(mx.array_equal, got, want)):
            yield f"{steps} steps, bound {bound}: a cache's state gives something else"
        if cache.asked != [(index, 3)]:
            yield f"a cache is asked for {cache.asked}"
    seen: list[Any] = []
    right = delta.gated_delta_update
    for wanted in (True, False):
        with replace(delta, "gated_delta_update", lambda *_, **o: seen.append(o["use_kernel"])):
            right(**given, cache=_States(state, None), use_kernel=wanted)
    if seen != [True, False]:
        yield f"with a cache kernels are used: {seen}"
    for name, wrong in (
        ("cache", {"cache": _States(state, None), "state": state}),
        ("cache", {"cache": _States(state, None), "state_steps": 1}),
        ("state_steps", {"state_steps": 0}),
        ("state_steps", {"state_steps": 4}),
    ):
        try:
            delta.gated_delta_update(**given, **wrong)
        except ValueError as error:
            if name not in str(error):
                yield f"{sorted(wrong)} is refused with {error}"
            continue
        yield f"{sorted(wrong)} is taken"


def _state_space() -> Iterator[str]:
    """One step from a state uses the kernel; other calls use operations, with mask and lengths."""
    names = ("hidden_states", "A_log", "B", "C", "D", "dt", "dt_bias")
    for (device, metal), tokens, state in itertools.product(_MACHINES, (1, 2), (None, "state")):
        given: dict[str, Any] = {name: name for name in names}
        given["hidden_states"] = mx.zeros((_ROWS, tokens, 3, 4))
        run: list[Any] = []
        plain: list[Any] = []
        with together(
            replace(ssm, "mx", WithMetal(device=device, metal=metal)),
            replace(ssm, "ssm_update_kernel", lambda *args, run=run: run.append(args)),
            replace(ssm, "ssm_attn", lambda *args, plain=plain, **o: plain.append((args, o))),
        ):
            limits = (0.1, 2.0)
            ssm.ssm_update(**given, state=state, time_step_limit=limits, mask="m", lengths="l")
        arguments = (*given.values(), state, limits)
        fit = device == mx.gpu and metal and tokens == 1 and state is not None
        rest = (arguments, {"mask": "m", "lengths": "l"})
        if (run, plain) != (([arguments], []) if fit else ([], [rest])):
            yield f"{tokens} tokens on {device}, Metal {metal}, {state}: {run}, {plain}"
