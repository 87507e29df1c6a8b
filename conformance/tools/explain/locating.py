"""The first place where a batched run differs from the single streams of its requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from conformance.backend.module_hooks import Pass
from conformance.report.explanation import LayerError, Where
from conformance.tools.explain.activations import errors
from conformance.tools.explain.alignment import Alignment, Span, Strange
from conformance.tools.explain.cache_differences import EntryDifference, entry_differences
from conformance.tools.explain.module_errors import differing, finite, layers
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
