"""Inputs and outputs of modules by position: a batch's row compared with the single stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.tools.explain.alignment import Alignment, Span

# A module, and the number of its call in the pass.
Place = tuple[str, int]


@dataclass
class SingleStream:
    """The activations of a request's single stream, by position.

    Attributes:
        given: the input of each place at each position, ``[features]``.
        made: the output of each place, likewise.
        axes: the position axis of each place, in ``given`` and in ``made``.
        passes: as recorded, with the number of tokens before each.
    """

    given: dict[Place, dict[int, np.ndarray]] = field(default_factory=dict)
    made: dict[Place, dict[int, np.ndarray]] = field(default_factory=dict)
    axes: dict[Place, tuple[int | None, int | None]] = field(default_factory=dict)
    passes: list[tuple[int, Pass]] = field(default_factory=list)


def by_position(passes: Sequence[Pass], sequence: tuple[int, ...]) -> SingleStream:
    """The recorded passes of a single stream, by position."""
    alignment = Alignment({"single": sequence})
    pairs: list[tuple[Pass, Span]] = []
    for one in passes:
        spans, _ = alignment.rows(one.tokens)
        pairs += [(one, span) for span in spans[:1] if span.count == one.tokens.shape[1]]
    found = SingleStream(passes=[(span.position, one) for one, span in pairs])
    found.axes = _axes(pairs)
    for one, span in pairs:
        for call in one.calls:
            place = (call.path, call.turn)
            given, made = found.axes.get(place, (None, None))
            _put(found.given.setdefault(place, {}), call.given, given, span)
            _put(found.made.setdefault(place, {}), call.made, made, span)
    return found


def vectors(array: np.ndarray | None, axis: int | None, span: Span) -> np.ndarray | None:
    """``[count, features]`` of a row of ``array``; ``None`` if it has no such row."""
    if array is None or axis is None or array.ndim <= axis:
        return None
    if span.row >= array.shape[0] or array.shape[axis] < span.first + span.count:
        return None
    row = np.moveaxis(array[span.row], axis - 1, 0)[span.first : span.first + span.count]
    found: np.ndarray = row.reshape(span.count, -1)
    return found


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference over the largest wanted number; infinite if ``got`` is not finite.

    Numbers that are not finite in the single stream are not compared, nor are different shapes:
    some modules sort their input.
    """
    if got.shape != want.shape:
        return 0.0
    known = np.isfinite(want)
    if not known.any():
        return 0.0
    if not np.isfinite(got[known]).all():
        return float("inf")
    scale = max(float(np.abs(want[known]).max()), 1e-6)
    return float(np.abs(got[known] - want[known]).max()) / scale


def errors(
    call: ModuleCall, span: Span, single: SingleStream
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """The relative errors of a module's input and of its output, by position.

    Empty for a module whose input has another size: the calls do not correspond.
    """
    place = (call.path, call.turn)
    given, made = single.axes.get(place, (None, None))
    rows, single_rows = vectors(call.given, given, span), single.given.get(place, {})
    known = (single_rows.get(span.position + index) for index in range(span.count))
    if rows is not None and any(row is not None and row.shape != rows.shape[1:] for row in known):
        return [], []
    return (
        _errors(rows, single_rows, span),
        _errors(vectors(call.made, made, span), single.made.get(place, {}), span),
    )


def noise(right: Iterable[Pass], perturbed: Iterable[Pass]) -> dict[str, float]:
    """The largest relative error that a perturbation of the same passes caused, by path."""
    found: dict[str, float] = {}
    for one, other in zip(right, perturbed, strict=True):
        for call, moved in zip(one.calls, other.calls, strict=False):
            if call.made is None or moved.made is None or call.path != moved.path:
                continue
            error = relative(moved.made, call.made)
            found[call.path] = max(found.get(call.path, 0.0), error)
    return found


def _put(to: dict[int, np.ndarray], array: np.ndarray | None, axis: int | None, span: Span) -> None:
    rows = vectors(array, axis, span)
    if rows is not None:
        to.update({span.position + index: row for index, row in enumerate(rows)})


def _errors(
    rows: np.ndarray | None, single: Mapping[int, np.ndarray], span: Span
) -> list[tuple[int, float]]:
    if rows is None:
        return []
    at = range(span.position, span.position + span.count)
    return [(p, relative(r, single[p])) for p, r in zip(at, rows, strict=True) if p in single]


def _axes(pairs: Sequence[tuple[Pass, Span]]) -> dict[Place, tuple[int | None, int | None]]:
    """The axis whose size is the length of the pass, for the input and the output of each place."""
    shapes: dict[Place, list[tuple[int, ModuleCall]]] = {}
    for one, span in pairs:
        for call in one.calls:
            shapes.setdefault((call.path, call.turn), []).append((span.count, call))
    return {
        place: (
            _axis([(n, h.given) for n, h in seen]),
            _axis([(n, h.made) for n, h in seen]),
        )
        for place, seen in shapes.items()
    }


def _axis(seen: Sequence[tuple[int, np.ndarray | None]]) -> int | None:
    arrays = [(length, array) for length, array in seen if array is not None]
    if not arrays:
        return None
    ranks = {array.ndim for _, array in arrays}
    if len(ranks) != 1 or any(array.shape[0] != 1 for _, array in arrays):
        return None
    fitting = (a for a in range(1, ranks.pop()) if all(x.shape[a] == n for n, x in arrays))
    return next(fitting, None)
