"""The modules of a pass that differ from the single streams, and the errors of its layers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.report.explanation import LayerError, Where
from conformance.tools.explain.activations import errors
from conformance.tools.explain.alignment import Span
from conformance.tools.explain.recording import Recording

# A module in a list of modules, and a module within it.
_LAYER = re.compile(r"^(?:.*\.)?[a-z_]+\.(\d+)$")
_WITHIN = re.compile(r"(?:^|\.)[a-z_]+\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Differing:
    """A module that differs.

    Attributes:
        shows: its layer's output differs too.
        own: its input equals the single stream's, its output does not.
    """

    where: Where
    shows: bool
    own: bool


def differing(recording: Recording, one: Pass, spans: Sequence[Span]) -> Iterator[Differing]:
    """The modules of a pass whose outputs differ, or the enclosing ones that gave their inputs."""
    right: ModuleCall | None = None
    for index, call in enumerate(one.calls):
        for span in spans:
            given, made = errors(call, span, recording.single[span.request_id])
            level = recording.level.of(call.path)
            wrong = [(p, e) for p, e in made if not e <= level]
            if not wrong:
                continue
            position, error = wrong[0]
            blamed = _blamed(recording, one, index, span, position)
            detail = f"the last right output is of {_name(right)}" if right else ""
            if blamed is not call:
                detail += f", the first different input is of {_name(call)}"
            where = Where(
                f"module:{blamed.path}:{blamed.kind}",
                span.request_id,
                span.row,
                position,
                layer=_number(blamed.path),
                error=finite(error),
                detail=detail.removeprefix(", "),
            )
            shows = _shows(recording, one, index, span, position)
            yield Differing(where, shows, own=bool(given) and blamed is call)
        right = call


def _shows(recording: Recording, one: Pass, index: int, span: Span, position: int) -> bool:
    """Whether a module's error reaches the output of its layer; true for a module in no layer.

    Attention may multiply in another order for one token than for several. The inputs of the
    modules within it then differ, although the result is the same.
    """
    path, single = one.calls[index].path, recording.single[span.request_id]
    around = [h for h in one.calls[index:] if (path + ".").startswith(h.path + ".")]
    within = [call for call in around if _LAYER.match(call.path)]
    if not within:
        return True
    layer = min(within, key=lambda call: len(call.path))
    _, made = errors(layer, span, single)
    level = recording.level.of(layer.path)
    return not made or any(p == position and not e <= level for p, e in made)


def _blamed(recording: Recording, one: Pass, index: int, span: Span, position: int) -> ModuleCall:
    """The call at ``index``, or the innermost enclosing call whose input is the single stream's.

    A call ends before its caller ends.
    """
    call = one.calls[index]
    given, _ = errors(call, span, recording.single[span.request_id])
    if all(p != position or e <= recording.level.of(call.path) for p, e in given):
        return call
    for outer in range(index + 1, len(one.calls)):
        path = one.calls[outer].path
        if not path or call.path.startswith(path + "."):
            return _blamed(recording, one, outer, span, position)
    return call


def layers(recording: Recording, one: Pass, spans: Sequence[Span]) -> tuple[LayerError, ...]:
    """The largest error of each layer's output; empty for a pass that fits no request."""
    found: dict[str, float] = {}
    for call in one.calls:
        if not _LAYER.match(call.path):
            continue
        if any(path != call.path and call.path.startswith(path + ".") for path in found):
            continue
        for span in spans:
            _, made = errors(call, span, recording.single[span.request_id])
            for _, error in made:
                found[call.path] = max(found.get(call.path, 0.0), error)
    # Modules in a list within a layer end before the layer itself.
    outer = [path for path in found if not any(path.startswith(other + ".") for other in found)]
    noise = recording.level.noise
    return tuple(LayerError(p, finite(found[p]), noise.get(p, 0.0)) for p in outer)


def _name(call: ModuleCall) -> str:
    return call.path or "the whole model"


def _number(path: str) -> int | None:
    found = _WITHIN.search(path)
    return int(found.group(1)) if found else None


def finite(error: float) -> float | None:
    """The error, or ``None`` if it is not finite: JSON has no infinity."""
    return error if math.isfinite(error) else None
