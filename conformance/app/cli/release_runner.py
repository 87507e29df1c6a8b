"""Runs releases in turn on this machine, or in parts on a cluster, and reports each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from conformance.app.cli.cluster_option import Helpers
from conformance.app.cli.printing import say
from conformance.app.cli.release_parts import keep, run_on_cluster
from conformance.report.jsonl import read_results
from conformance.tools.releases.cache_outcomes import read_outcomes
from conformance.tools.releases.pins import Pins, Release
from conformance.tools.releases.release_run import Choice, Column, caches_file, run

_NOTE_EVERY_SECONDS = 10.0


class Runner:
    """Runs releases, and reports each on standard error."""

    def __init__(
        self, shared: Helpers, *, cache: Path, folder: Path, pins: Pins, resume: bool
    ) -> None:
        self._shared, self._cache, self._pins = shared, cache, pins
        self._folder, self._resume = folder, resume

    def run_all(self, releases: Sequence[Release], choice: Choice) -> list[Column]:
        """Run each release and return its column; with ``--resume``, existing results are read."""
        known = {release: column for release in releases if (column := self._known(release))}
        left = [release for release in releases if release not in known]
        if self._shared.elsewhere:
            found = self._run_on_cluster(left, choice)
        else:
            found = {release: self._run_here(release, choice) for release in left}
        return [(known | found)[release] for release in releases]

    def _file(self, release: Release) -> Path:
        return self._folder.absolute() / f"{release.library}-{release.version}.jsonl"

    def _known(self, release: Release) -> Column | None:
        file = self._file(release)
        if not self._resume or not (file.is_file() or caches_file(file).is_file()):
            return None
        column = _read(release, file)
        say(f"{release}: {_summary(column)}, from {file}", err=True)
        return column

    def _run_on_cluster(self, releases: Sequence[Release], choice: Choice) -> dict[Release, Column]:
        def note(release: Release, done: int, planned: int) -> None:
            say(f"{release}: {done}/{planned} parts", err=True)

        found: dict[Release, Column] = {}
        for ran in run_on_cluster(releases, choice, self._pins, self._shared, note):
            column = ran.column
            keep(ran, self._file(column.release))
            _say_end(column)
            found[column.release] = column
        return found

    def _run_here(self, release: Release, choice: Choice) -> Column:
        """See ``releases.release_run.run``."""
        say(f"{release}: installing if need be, and running", err=True)
        given, file = self._pins.beside(release), self._file(release)
        note = _Notes(str(release))
        column = run(release, choice, cache=self._cache, json_file=file, given=given, note=note)
        _say_end(column)
        return column


def _say_end(column: Column) -> None:
    problem = f"; {column.problem}" if column.problem and not column.empty else ""
    said = column.problem if column.empty else _summary(column)
    say(f"{column.release}: {said}{problem}", err=True)


class _Notes:
    """Reports from time to time how far a release is."""

    def __init__(self, name: str) -> None:
        self._name, self._noted, self._done = name, time.monotonic(), -1

    def __call__(self, done: int, planned: int) -> None:
        now = time.monotonic()
        if planned and done != self._done and now - self._noted >= _NOTE_EVERY_SECONDS:
            self._noted, self._done = now, done
            say(f"{self._name}: {done}/{planned} cases", err=True)


def _read(release: Release, file: Path) -> Column:
    beside = caches_file(file)
    results = read_results(file) if file.is_file() else ()
    return Column(release, results, read_outcomes(beside) if beside.is_file() else ())


def _summary(column: Column) -> str:
    caches = f", {len(column.caches)} cache classes" if column.caches else ""
    return f"{len(column.results)} cases{caches}"
