"""What modules made at a position: the same in a batch's row and alone, or by how much not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.tools.explain.alignment import Alignment, Span

# A module, and the how-manieth of its calls in a pass.
Place = tuple[str, int]


@dataclass
class Alone:
    """The single stream of a request, position by position.

    Attributes:
        given: for each place of the tree what it was given at each position, ``[features]``.
        made: what it made of it.
        axes: on which axis each place has the positions: of ``given`` and of ``made``.
        passes: as they were recorded, with the number of tokens before each.
    """

    given: dict[Place, dict[int, np.ndarray]] = field(default_factory=dict)
    made: dict[Place, dict[int, np.ndarray]] = field(default_factory=dict)
    axes: dict[Place, tuple[int | None, int | None]] = field(default_factory=dict)
    passes: list[tuple[int, Pass]] = field(default_factory=list)


def alone(passes: Sequence[Pass], sequence: tuple[int, ...]) -> Alone:
    """The positions of a single stream, of all recorded passes of it."""
    alignment = Alignment({"alone": sequence})
    pairs: list[tuple[Pass, Span]] = []
    for one in passes:
        spans, _ = alignment.rows(one.tokens)
        pairs += [(one, span) for span in spans[:1] if span.count == one.tokens.shape[1]]
    found = Alone(passes=[(span.position, one) for one, span in pairs])
    found.axes = _axes(pairs)
    for one, span in pairs:
        for call in one.calls:
            place = (call.path, call.turn)
            given, made = found.axes.get(place, (None, None))
            _put(found.given.setdefault(place, {}), call.given, given, span)
            _put(found.made.setdefault(place, {}), call.made, made, span)
    return found


def vectors(array: np.ndarray | None, axis: int | None, span: Span) -> np.ndarray | None:
    """``[count, features]`` of a row of ``array``; ``None`` where it has no such rows."""
    if array is None or axis is None or array.ndim <= axis:
        return None
    if span.row >= array.shape[0] or array.shape[axis] < span.first + span.count:
        return None
    row = np.moveaxis(array[span.row], axis - 1, 0)[span.first : span.first + span.count]
    found: np.ndarray = row.reshape(span.count, -1)
    return found


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference over the largest number that is wanted; not finite counts as much.

    Where the single stream's own number is not finite there is nothing to hold against, nor where
    the shapes differ: some modules sort what they are given.
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
    call: ModuleCall, span: Span, single: Alone
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """By position the relative error of what a module was given, and of what it made.

    Nothing of a module that was given a thing of another size: it was asked for something else.
    """
    place = (call.path, call.turn)
    given, made = single.axes.get(place, (None, None))
    rows, alone_rows = vectors(call.given, given, span), single.given.get(place, {})
    there = (alone_rows.get(span.position + index) for index in range(span.count))
    if rows is not None and any(row is not None and row.shape != rows.shape[1:] for row in there):
        return [], []
    return (
        _errors(rows, alone_rows, span),
        _errors(vectors(call.made, made, span), single.made.get(place, {}), span),
    )


def noise(right: Iterable[Pass], perturbed: Iterable[Pass]) -> dict[str, float]:
    """By path the largest relative error that a perturbation of the same passes made."""
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
    """The axis whose length is that of each pass, for what each place was given and made."""
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
