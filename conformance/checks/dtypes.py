"""Caches and states of a batch have the dtypes that they have in the single stream.

A state that is cast down loses what the single stream keeps, though in half precision the
difference may be within the noise; one that is cast up takes twice the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_dtypes(play: Play) -> list[Finding]:
    """``drift`` if a layer's cache holds floating arrays of other dtypes than the single stream's.

    Layers that hold nothing yet are left out.
    """
    return [finding for trace in play.traces[:2] for finding in _first(play, trace, play.dtypes)]


def _first(play: Play, trace: Trace, wanted: tuple[tuple[str, ...], ...]) -> Iterator[Finding]:
    """The first layer of the first step with another dtype."""
    for step in trace.steps:
        if len(step.layers) != len(wanted):
            continue
        for index, (layer, want) in enumerate(zip(step.layers, wanted, strict=True)):
            if layer.dtypes and want and layer.dtypes != want:
                yield Finding(
                    Verdict.DRIFT,
                    "dtypes",
                    f"the cache of layer {index} holds {_named(layer.dtypes)} after step "
                    f"{step.index}",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    expected=f"{_named(want)}, as in the single stream",
                    got=_named(layer.dtypes),
                    cause="a cache is made, joined or filled in another dtype than its arrays have",
                )
                return


def _named(dtypes: tuple[str, ...]) -> str:
    return " and ".join(dtypes)
