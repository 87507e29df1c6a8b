"""The first place where a batched run differs from the single streams of its requests."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.report.explanation import LayerError, Where
from conformance.tools.explain.activations import errors
from conformance.tools.explain.alignment import Alignment, Span, Strange
from conformance.tools.explain.cache_differences import EntryDifference, entry_differences
from conformance.tools.explain.recording import Recording


@dataclass(frozen=True)
class Located:
    """The first place and the first cache entry that differ, and the layers of that pass."""

    where: Where | None
    entry: Where | None
    layers: tuple[LayerError, ...]


def locate(recording: Recording, *, aside: Collection[str] = ()) -> Located:
    """Search the passes of the run for the first difference, and the first in a cache entry.

    In each pass the input is compared first, then the contents of the caches, then the modules.
    Requests in ``aside`` are known to be wrong for another reason and are not compared.
    """
    alignment = Alignment(recording.sequences, recording.begun)
    where: Where | None = None
    entry: Where | None = None
    along: tuple[LayerError, ...] = ()
    # Modules that differ before their layer does: for example a key that no other token has read.
    hidden: dict[tuple[str | None, int | None], Where | None] = {}
    for call, (one, index) in enumerate(zip(recording.passes, recording.steps, strict=True)):
        if index is None:
            break
        if one.aside:
            continue
        every, strange = alignment.rows(one.tokens, recording.trace.steps[index])
        spans = tuple(span for span in every if span.request_id not in aside)
        strange = tuple(found for found in strange if found.request_id not in aside)
        entry = entry or _placed(next(_entries(recording, one, spans, index), None), call, index)
        if where is None:
            fed = _of_input(strange[0]) if strange else _of_embeddings(recording, one, spans)
            known = hidden.get((entry.request_id, entry.layer)) if entry is not None else None
            where = _placed(fed or known or entry, call, index)
            own: dict[str | None, Where | None] = {}
            for found in differing(recording, one, spans) if where is None else ():
                placed = _placed(found.where, call, index)
                if found.shows:
                    where = own.get(found.where.request_id, placed)
                    break
                hidden.setdefault((found.where.request_id, found.where.layer), placed)
                if found.own:
                    own.setdefault(found.where.request_id, placed)
            along = layers(recording, one, spans) if where is not None else ()
        if where is not None and entry is not None:
            break
    return Located(where, entry, along)


def _placed(where: Where | None, call: int, step: int) -> Where | None:
    if where is None or where.call is not None:
        return where
    return msgspec.structs.replace(where, call=call, step=step)


def _of_input(strange: Strange) -> Where:
    return Where(
        "input:tokens",
        strange.request_id,
        strange.row,
        strange.position,
        detail=f"the row was fed {list(strange.got)}, next were {list(strange.expected)}",
    )


def _of_embeddings(recording: Recording, one: Pass, spans: Sequence[Span]) -> Where | None:
    """The first row whose embeddings differ from the single stream's, if embeddings are given."""
    whole = one.calls[-1] if one.calls else None
    if whole is None or whole.path or whole.given is None or whole.given.ndim != 3:
        return None
    for span in spans:
        given, _ = errors(whole, span, recording.single[span.request_id])
        for position, error in given:
            if not error <= recording.level.floor:
                return Where(
                    "input:embeddings",
                    span.request_id,
                    span.row,
                    position,
                    error=finite(error),
                    detail="the tokens are the single stream's, their embeddings are not",
                )
    return None


def _entries(recording: Recording, one: Pass, spans: Sequence[Span], step: int) -> Iterator[Where]:
    """Cache entries that differ before a pass, layer by layer and row by row."""
    drafted = recording.trace.steps[step].output.drafted
    for number, held in enumerate(one.caches):
        for span in spans:
            single = recording.single[span.request_id]
            later = [(at, p) for at, p in single.passes if at >= span.position]
            if not later:
                continue
            at, nearest = min(later, key=lambda pair: pair[0])
            if number >= len(nearest.caches):
                continue
            for found in entry_differences(
                held,
                nearest.caches[number],
                row=span.row,
                done=span.position,
                exact=at == span.position,
                level=recording.level.of_entries,
                # In the middle of a prompt, counts may include padding that is removed at its end.
                ahead=span.first,
                counted=one.tokens.shape[1] == 1 or span.begins or span.request_id in drafted,
            ):
                yield _of_entry(found, span)


def _of_entry(found: EntryDifference, span: Span) -> Where:
    if found.expected:
        detail = f"{found.part} is {found.got}, expected {found.expected}"
    elif found.misplaced:
        detail = f"the {found.part} of position {found.column} stand before those of earlier ones"
    elif found.column is not None:
        detail = f"nowhere in the row are the {found.part} of position {found.column}"
    else:
        detail = f"{found.part} of the row differ"
    return Where(
        f"cache:{found.place}:{found.kind}:{found.part}",
        span.request_id,
        found.row,
        found.column if found.column is not None else span.position,
        layer=int(found.place.split(".")[0]),
        error=finite(found.error),
        detail=detail,
    )


# The modules of a pass that differ from the single streams, and the errors of its layers ----------

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
