"""Joins several result files into one run, such as shards, engines or dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from conformance.core.errors import ResultError
from conformance.core.run_header import RunHeader
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import RunFile, read_run

LONGEST_HOURS = 12.0
"""Shards of one run begin within this time; an earlier nightly run began before."""


@dataclass(frozen=True)
class Joined:
    """One run.

    Attributes:
        results: results of all files that count.
        header: the sum of their headers; ``None`` if a file has none.
        problems: sentences about shards that do not count or are missing, and about files without a
            header.
        missing: how many of the planned cases have no result.
    """

    results: tuple[CaseResult, ...] = ()
    header: RunHeader | None = None
    problems: tuple[str, ...] = ()
    missing: int = 0


def read_joined(paths: Sequence[Path]) -> Joined:
    """The results of all files, some of which may be empty.

    Raises:
        ResultError: all files are empty, a case is there twice, or a file can't be read.
    """
    runs = {path: read_run(path) for path in paths}
    stale = _stale(runs)
    kept = {path: run for path, run in runs.items() if path not in stale}
    found: dict[str, CaseResult] = {}
    for path, run in kept.items():
        for result in run.results:
            if result.case in found:
                raise ResultError(f"{path}: the case {result.case} is there twice")
            found[result.case] = result
    if paths and not found:
        raise ResultError(f"no results in {', '.join(map(str, paths))}")
    header = _sum([run.header or RunHeader(len(run.results)) for run in kept.values()])
    bare = [path for path, run in kept.items() if not run.header]
    lacking = lacking_shards(header)
    unknown = "has no header: it is not known whether it is whole; play its cases again"
    problems = (*stale.values(), *filter(None, [lacking]), *(f"{path} {unknown}" for path in bare))
    missing = sum(run.missing for run in kept.values())
    return Joined(tuple(found.values()), None if bare or not kept else header, problems, missing)


def lacking_shards(header: RunHeader) -> str:
    """A sentence about the missing shards of a run; empty if it is whole."""
    if not header.shard:
        return ""
    numbers, count = parts_of(header.shard)
    gone = [f"{number}/{count}" for number in range(1, count + 1) if number not in numbers]
    return f"not a whole run: {'shards' if len(gone) > 1 else 'shard'} {', '.join(gone)} not there"


def parts_of(shard: str) -> tuple[set[int], int]:
    """The numbers of the shards in ``1,2/4``, and how many there are."""
    numbers, _, count = shard.partition("/")
    return set(map(int, numbers.split(","))), int(count)


def _stale(runs: Mapping[Path, RunFile]) -> dict[Path, str]:
    """A sentence for each shard that does not belong to the newest run."""
    shards = {path: run.header for path, run in runs.items() if run.header and run.header.shard}
    if not shards:
        return {}
    newest = max(shards, key=lambda path: shards[path].started)
    return {
        path: f"{path} does not count: {why} {newest}"
        for path, header in shards.items()
        if (why := _differs(header, shards[newest]))
    }


def _differs(header: RunHeader, newest: RunHeader) -> str:
    if header.run != newest.run:
        return "other settings or versions than those of"
    hours = (_time(newest) - _time(header)).total_seconds() / 3600
    return f"it began {hours:.0f} h before" if hours > LONGEST_HOURS else ""


def _time(header: RunHeader) -> datetime:
    try:
        return datetime.fromisoformat(header.started)
    except ValueError as error:
        raise ResultError(f"field 'started' is {header.started!r}, which is no time") from error


def _sum(headers: Sequence[RunHeader]) -> RunHeader:
    """The joint header; its shard is empty if all shards are there."""
    shards = [parts_of(header.shard) for header in headers if header.shard]
    numbers = {number for found, _ in shards for number in found}
    count = max((count for _, count in shards), default=0)
    there = ",".join(map(str, sorted(numbers)))
    return RunHeader(
        sum(one.planned for one in headers),
        next((header.stopped for header in headers if header.stopped), ""),
        devices=tuple(dict.fromkeys(name for header in headers for name in header.devices)),
        tier=_common([header.tier for header in headers]),
        shard=f"{there}/{count}" if len(numbers) < count else "",
        run=_common([header.run for header in headers]),
        started=min((header.started for header in headers), default=""),
    )


def _common(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ""
