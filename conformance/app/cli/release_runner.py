"""Runs releases in turn on this machine, or in parts on a cluster, and reports each."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from conformance.app.cli.cluster_option import Helpers
from conformance.app.cli.options import SECONDS, stacked
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.core.names import usual_tier
from conformance.core.run_header import RunHeader
from conformance.core.user_cache import user_cache
from conformance.report.jsonl import read_results, write_lines, write_results
from conformance.run.family_seconds import FamilySeconds
from conformance.run.registry import Registry
from conformance.run.selection import Selection, cases, seed_number
from conformance.run.tiers import tier
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
        say(f"{release}: installing if need be, and running {choice.text(release)}", err=True)
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

    def __call__(self, done: int, planned: int, last: str = "") -> None:
        now = time.monotonic()
        if planned and done != self._done and now - self._noted >= _NOTE_EVERY_SECONDS:
            self._noted, self._done = now, done
            say(f"{self._name}: {done}/{planned} cases, the last one {last}", err=True)


def _read(release: Release, file: Path) -> Column:
    beside = caches_file(file)
    results = read_results(file) if file.is_file() else ()
    return Column(release, results, read_outcomes(beside) if beside.is_file() else ())


def _summary(column: Column) -> str:
    caches = f", {len(column.caches)} cache classes" if column.caches else ""
    return f"{len(column.results)} cases{caches}"


# Releases on a cluster, split into parts of some families; each worker installs the release ------

# Two processes, so that a crash affects one case only; a part with one family uses one process.
_JOBS = 2


class Part(NamedTuple):
    """Some families of a release, or its cache classes."""

    release: Release
    choice: Choice
    given: Mapping[str, str]


class Ran(NamedTuple):
    """The results of a part, and the lines about cache classes as they were written."""

    column: Column
    caches: tuple[str, ...] = ()


def environments() -> Path:
    """The default folder for environments of releases."""
    return user_cache() / "releases"


def run_part(part: Part) -> Ran:
    """Install the release on this machine if necessary, and run the part here."""
    with tempfile.TemporaryDirectory(prefix="conformance-releases-") as name:
        file = Path(name, "results.jsonl")
        column = run(
            part.release, part.choice, cache=environments(), json_file=file, given=part.given
        )
        beside = caches_file(file)
        lines = beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else ()
    return Ran(column, tuple(lines))


def parts_of(
    registry: Registry, release: Release, choice: Choice, given: Mapping[str, str], count: int
) -> Iterator[Part]:
    """Split a release into about ``count`` parts of equal length.

    Raises:
        ConformanceError: the choice selects no case.
    """
    own = dataclasses.replace(choice, jobs=choice.jobs or _JOBS)
    if choice.caches:
        yield Part(release, dataclasses.replace(own, cases=False), given)
    if not choice.cases:
        return
    level = usual_tier(named=bool(choice.families or choice.scenarios))
    selection = Selection(
        engines=choice.engines or (release.engine,),
        families=choice.families,
        scenarios=choice.scenarios,
        dtypes=choice.dtypes or ("float32",),
        seeds=tuple(map(seed_number, choice.seeds)) or (0,),
        tier=tier(level),
    )
    groups = {
        f"{registry.engines[case.engine].library}/{case.family}": case.family
        for case in cases(registry, selection)
    }
    for part in FamilySeconds.load().parts(groups, min(count, len(groups))):
        families = tuple(dict.fromkeys(groups[group] for group in part))
        yield Part(
            release,
            dataclasses.replace(own, families=families, tier=level, caches=False),
            given,
        )


def run_on_cluster(
    releases: Sequence[Release],
    choice: Choice,
    pins: Pins,
    shared: Helpers,
    note: Callable[[Release, int, int], None],
) -> Iterator[Ran]:
    """Yield each release's results, as of one run, as soon as its parts are done.

    Args:
        note: called with the number of finished parts of a release, and of all its parts.

    Raises:
        ConformanceError: the choice selects no case, or the cluster is lost.
    """
    registry, count = registry_of(), max(1, shared.count // max(len(releases), 1))
    parts = [
        part
        for release in releases
        for part in parts_of(registry, release, choice, pins.beside(release), count)
    ]
    planned = Counter(part.release for part in parts)
    found: dict[Release, list[Ran]] = {release: [] for release in releases}
    ended = "cannot be run: the workers that ran it ended"
    crashed = lambda part: Ran(Column(part.release, problem=ended))  # noqa: E731
    for index, ran in shared.as_they_come(run_part, parts, on_crash=crashed):
        release = parts[index].release
        found[release].append(ran)
        note(release, len(found[release]), planned[release])
        if len(found[release]) == planned[release]:
            yield _whole(release, choice, found[release])


def _whole(release: Release, choice: Choice, parts: Sequence[Ran]) -> Ran:
    """Merge parts; a family is in one part, so its results keep their order."""
    results = [result for part in parts for result in part.column.results]
    problems = dict.fromkeys(part.column.problem for part in parts if part.column.problem)
    # As on one machine: cache classes of a release that cannot be run are not tested.
    tested = parts if results or not choice.cases else ()
    return Ran(
        Column(
            release,
            tuple(sorted(results, key=lambda result: result.family)),
            tuple(outcome for part in tested for outcome in part.column.caches),
            "; ".join(problems),
        ),
        tuple(line for part in tested for line in part.caches),
    )


def keep(ran: Ran, file: Path) -> None:
    """Write a release's results and its cache classes' results to the files of a local run.

    Raises:
        ResultError: they cannot be written.
    """
    if ran.column.results:
        write_results(file, ran.column.results, RunHeader(planned=len(ran.column.results)))
    if ran.caches:
        write_lines(caches_file(file), ran.caches)


# The options of commands that install releases and run them ---------------------------------------

_FOLDER = click.Path(file_okay=False, path_type=Path)

release_options = stacked(
    click.option(
        "--timeout",
        type=SECONDS,
        metavar="SECONDS",
        help="Stop the run of a release after this time; results until then count.",
    ),
    click.option(
        "--json",
        "json_folder",
        type=_FOLDER,
        metavar="DIR",
        help="Save the results in this folder, one file for each release.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Read existing results in the folder of --json instead of rerunning these releases.",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        metavar="[LIBRARY==V:]NAME==V",
        help="Install this version with every release, or with the named one, instead of the "
        "version known to work.",
    ),
    click.option(
        "--cache-dir",
        type=_FOLDER,
        metavar="DIR",
        help="Folder for the releases' environments. Default: a folder in the user's cache.",
    ),
)
