"""``conformance releases``: the ladder in several releases of a library, side by side."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from conformance.app.cli.numbers import SECONDS
from conformance.app.cli.options import globs, jobs_option
from conformance.app.cli.outputs import writable
from conformance.app.cli.printing import say
from conformance.core.errors import ReleaseError
from conformance.core.user_cache import user_cache
from conformance.core.verdict import CaseId
from conformance.report.history import State, state_of
from conformance.report.jsonl import read_results, write_lines
from conformance.run.selection import DTYPES
from conformance.tools.releases.bisection import bisect
from conformance.tools.releases.cache_outcomes import read_outcomes
from conformance.tools.releases.kept_environments import kept, remove
from conformance.tools.releases.pins import Pins, Release, parse, parse_pins
from conformance.tools.releases.release_run import Choice, Column, caches_file, run
from conformance.tools.releases.release_table import as_markdown, as_text, make_table

_NOTE_EVERY_SECONDS = 10.0
_MB = 1e6


@click.command("releases")
@click.argument("releases", nargs=-1, metavar="LIBRARY==V,V,...")
@globs("engine", "As for `run`.")
@globs("family", "As for `run`.")
@globs("scenario", "As for `run`.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="As for `run`.")
@click.option(
    "--caches",
    type=click.Choice(["also", "only", "no"]),
    default="also",
    show_default=True,
    help="Whether cache classes are tested in each release, as `audit caches` does.",
)
@jobs_option("As for `run`.")
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="End the run of a release after so long; what it has until then counts.",
)
@click.option(
    "--json",
    "json_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the results there, one file for each release.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Do not run releases again whose results are in the folder of --json: read them.",
)
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the table as Markdown.",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="[LIBRARY==V:]NAME==V",
    help="Install this version beside every release, or beside the one that is named, in place of "
    "what is known to work with it.",
)
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where environments are kept. Default: a folder of the user's cache.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Only list the environments that are kept, with their sizes, and delete them.",
)
@click.option(
    "--bisect",
    "case",
    metavar="CASE_ID",
    help="Only find where this case changed, with as few releases as can be.",
)
def command(
    *,
    releases: tuple[str, ...],
    engines: tuple[str, ...],
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    dtypes: tuple[str, ...],
    caches: str,
    jobs: int | None,
    timeout: float | None,
    json_folder: Path | None,
    resume: bool,
    markdown: Path | None,
    pins: tuple[str, ...],
    cache_dir: Path | None,
    clean: bool,
    case: str | None,
) -> None:
    """Compare releases of a library: which defects came, and which went.

    Each release is installed into an environment of its own, with versions of mlx and transformers
    that work with it, and runs the same cases there. A library without versions stands for all
    its releases that are known here. Expectations do not apply: they are about the current
    releases.

    \b
    conformance releases mlx-lm==0.31.2,0.31.3,0.32.2 --family 'qwen3*'
    conformance releases mlx-lm==0.30.4,0.30.5 --caches only
    conformance releases mlx-lm --bisect mlx_lm/qwen3_5/ragged/float32/0
    conformance releases --clean
    """  # noqa: D301
    folder = (cache_dir or user_cache() / "releases").absolute()
    if clean:
        _clean(folder)
        return
    if not releases:
        raise ReleaseError("name releases, for example mlx-lm==0.31.2,0.31.3, or give --clean")
    chosen = parse(releases)
    markdown = writable(markdown, "--markdown") if markdown else None
    if resume and (json_folder is None or case is not None):
        raise ReleaseError("--resume needs --json DIR, where the results are, and no --bisect")
    choice = Choice(
        engines,
        families,
        scenarios,
        dtypes,
        jobs=jobs,
        timeout=timeout,
        caches=caches != "no",
        cases=caches != "only",
    )
    with tempfile.TemporaryDirectory(prefix="conformance-releases-") as passing:
        runner = _Runner(
            cache=folder,
            folder=_made(json_folder) if json_folder else Path(passing),
            pins=parse_pins(pins),
            resume=resume,
        )
        if case is not None:
            say(_bisect(chosen, case, choice, runner))
            return
        columns = [runner.run(release, choice) for release in chosen]
        _check_any(columns)
        table = make_table(columns)
    say(as_text(table))
    if markdown is not None:
        write_lines(markdown, as_markdown(table).splitlines())


class _Runner:
    """Runs releases, and reports each on standard error."""

    def __init__(self, *, cache: Path, folder: Path, pins: Pins, resume: bool) -> None:
        self._cache, self._folder, self._pins, self._resume = cache, folder, pins, resume

    def run(self, release: Release, choice: Choice) -> Column:
        """See ``releases.release_run.run``."""
        file = self._folder.absolute() / f"{release.library}-{release.version}.jsonl"
        if self._resume and (file.is_file() or caches_file(file).is_file()):
            column = _read(release, file)
            say(f"{release}: {_summary(column)}, from {file}", err=True)
            return column
        say(f"{release}: installing if need be, and running", err=True)
        given = self._pins.beside(release)
        note = _Notes(str(release))
        column = run(release, choice, cache=self._cache, json_file=file, given=given, note=note)
        problem = f"; {column.problem}" if column.problem and not column.empty else ""
        said = column.problem if column.empty else _summary(column)
        say(f"{release}: {said}{problem}", err=True)
        return column


class _Notes:
    """Says from time to time how far a release is."""

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


def _check_any(columns: list[Column]) -> None:
    """Raise an error if no release could be run."""
    if all(column.empty for column in columns):
        first = columns[0]
        raise ReleaseError(f"no release could be run; {first.release}: {first.problem}")


def _bisect(releases: tuple[Release, ...], text: str, choice: Choice, runner: _Runner) -> str:
    case = CaseId.parse(text)
    one = Choice(
        (case.engine,),
        (case.family,),
        (case.scenario,),
        (case.dtype,),
        (str(case.seed),),
        choice.jobs,
        choice.timeout,
    )
    columns: list[Column] = []

    def judge(release: Release) -> State:
        columns.append(runner.run(release, one))
        results = columns[-1].results
        return state_of(results[0].verdict if results else None)

    change = bisect(releases, judge)
    _check_any(columns)
    if change is None:
        return f"{text}: the oldest and the newest release that can run it agree, or too few can"
    return f"{text}: {change.text}"


def _clean(folder: Path) -> None:
    entries = kept(folder)
    for entry in entries:
        say(f"{entry.size / _MB:8.0f} MB  {entry.path.name}")
    remove(entries)
    total = sum(entry.size for entry in entries)
    say(f"{len(entries)} entries, {total / _MB:.0f} MB, deleted from {folder}")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReleaseError(f"--json: {folder} cannot be made: {error.strerror}") from error
    return folder
