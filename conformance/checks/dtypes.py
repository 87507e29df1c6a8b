"""Caches and states of a batch must have the dtypes that they have in the single stream.

A state that is cast down loses precision that the single stream keeps, though in half precision the
difference may be within the noise; a state that is cast up takes twice the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.schedule import Stage
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_dtypes(play: Play) -> list[Finding]:
    """``drift`` if a layer's cache has floating dtypes that no row of it has in its single stream.

    A prompt with media may have other dtypes than text, and joined rows have the wider ones, even
    after rows have left. Empty layers are left out. In half precision so are the logits that
    logits processors are given.
    """
    caches = [finding for trace in play.traces[:2] for finding in _first(play, trace)]
    return [*caches, *(found for trace in play.traces[:2] for found in _processed(play, trace))]


def _processed(play: Play, trace: Trace) -> Iterator[Finding]:
    """Each other dtype of the logits that processors were given."""
    steps = trace.steps if play.dtype != "float32" else ()
    given = {claim.dtype for step in steps for claim in step.output.claims if claim.dtype}
    if not given or not (wanted := play.logits_dtype()):
        return
    for dtype in sorted(given - {wanted}):
        yield Finding(
            Verdict.DRIFT,
            "dtypes",
            "logits processors are given logits of another dtype than in the single stream",
            schedule=play.schedule.name,
            mode=trace.mode,
            expected=wanted,
            got=dtype,
            cause="in a batch, logits are cast before they are processed",
        )


def _first(play: Play, trace: Trace) -> Iterator[Finding]:
    """The first layer of the first step with another dtype."""
    for step, rows in zip(trace.steps, _joined(trace), strict=True):
        wanted = [play.dtypes[name] for name in rows if name in play.dtypes]
        if not wanted or any(len(layers) != len(step.layers) for layers in wanted):
            continue
        for index, layer in enumerate(step.layers):
            wants = {layers[index] for layers in wanted}
            if layer.dtypes and () not in wants and layer.dtypes not in wants:
                yield Finding(
                    Verdict.DRIFT,
                    "dtypes",
                    f"the cache of layer {index} holds {_named(layer.dtypes)} after step "
                    f"{step.index}",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    expected=f"{' or '.join(map(_named, sorted(wants)))}, as in the single stream",
                    got=_named(layer.dtypes),
                    cause="a cache is made, joined or filled in another dtype than its arrays have",
                )
                return


def _joined(trace: Trace) -> Iterator[set[str]]:
    """For each step the rows that were in the batch since it was last empty."""
    last: set[str] = set()
    found: set[str] = set()
    for step in trace.steps:
        rows = set(step.in_stage(Stage.PREFILL)) | set(step.in_stage(Stage.DECODE))
        rows |= {event.request_id for event in step.output.events} | step.output.processed.keys()
        found = found | rows if rows & last else rows
        last = rows
        yield found


def _named(dtypes: tuple[str, ...]) -> str:
    return " and ".join(dtypes)
