"""Records the lines that schedules run, in several processes or on a cluster's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from rich.console import Console

from conformance.app.cli.cluster_option import Helpers
from conformance.backend.uncompiled import uncompiled
from conformance.core.errors import ConformanceError
from conformance.power.mutants.mutant_plan import Recording
from conformance.power.mutants.reach import Reach
from conformance.run.registry import Registry, build_registry


class _Part(NamedTuple):
    """A scenario of a family; its own process records its lines."""

    of: Recording
    scenario: str


def recorded(
    registry: Registry, recordings: Sequence[Recording], console: Console, shared: Helpers
) -> list[Reach]:
    """The lines that each family's schedules run; unknown ones are recorded, by scenario.

    Raises:
        ConformanceError: no family's cases can be run.
    """
    known = [recording.known(registry) for recording in recordings]
    unknown = [r for r, reach in zip(recordings, known, strict=True) if reach is None]
    todo = [_Part(r, scenario) for r in unknown for scenario in r.scenarios(registry)]
    parts: dict[str, dict[int, Reach | str]] = {recording.family: {} for recording in unknown}
    with (
        console.status("recording lines") as status,
        contextlib.closing(shared.as_they_come(_record, todo, on_crash=_crashed)) as done,
    ):
        for number, (index, reach) in enumerate(done, start=1):
            parts[todo[index].of.family][index] = reach
            status.update(f"lines of {number} of {len(todo)} scenarios")
    found = [reach for reach in known if reach is not None]
    for recording in unknown:
        own = [reach for _, reach in sorted(parts[recording.family].items())]
        if wrong := [part for part in own if isinstance(part, str)]:
            console.print(f"{recording.family}: left out: {wrong[0]}", soft_wrap=True)
        else:
            found.append(recording.keep([part for part in own if isinstance(part, Reach)]))
    if not found:
        raise ConformanceError("there is no family whose cases could be played")
    return sorted(found, key=lambda reach: reach.family)


@cache
def _registry() -> Registry:
    """Made once in each process."""
    return build_registry()


def _record(part: _Part) -> Reach | str:
    try:
        with uncompiled():  # a cluster's worker has not set the variable that disables compiling
            return part.of.make(_registry(), part.scenario)
    except Exception as error:  # noqa: BLE001 - whatever a library raises costs its family alone
        return str(error) or repr(error)


def _crashed(_: _Part) -> str:
    return "its process crashed"
