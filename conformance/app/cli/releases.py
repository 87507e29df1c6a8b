"""``conformance releases``: the ladder in several releases of a library, side by side."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

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
from conformance.tools.releases.pins import Release, parse, parse_pins
from conformance.tools.releases.release_run import Choice, Column, run
from conformance.tools.releases.release_table import as_markdown, as_text, make_table


@click.command("releases")
@click.argument("releases", nargs=-1, required=True, metavar="LIBRARY==V,V,...")
@globs("engine", "As for `run`.")
@globs("family", "As for `run`.")
@globs("scenario", "As for `run`.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="As for `run`.")
@jobs_option("As for `run`.")
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
    metavar="NAME==V",
    help="Install this version beside every release, in place of the one in our table.",
)
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where environments are kept. Default: a folder of the user's cache.",
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
    jobs: int | None,
    json_folder: Path | None,
    resume: bool,
    markdown: Path | None,
    pins: tuple[str, ...],
    cache_dir: Path | None,
    case: str | None,
) -> None:
    """Compare releases of a library: which defects came, and which went.

    Each release is installed into an environment of its own, with versions of mlx and transformers
    that work with it, and runs the same cases there. A library without versions stands for all
    its releases that we have pins for. Expectations do not apply: they are about the current
    releases.

    \b
    conformance releases mlx-lm==0.31.2,0.31.3,0.32.2 --family 'qwen3*'
    conformance releases mlx-lm --bisect mlx_lm/qwen3_5/ragged/float32/0
    """  # noqa: D301
    chosen = parse(releases)
    markdown = writable(markdown, "--markdown") if markdown else None
    if resume and (json_folder is None or case is not None):
        raise ReleaseError("--resume needs --json DIR, where the results are, and no --bisect")
    choice = Choice(engines, families, scenarios, dtypes, (), jobs)
    with tempfile.TemporaryDirectory(prefix="conformance-releases-") as passing:
        runner = _Runner(
            cache=(cache_dir or user_cache() / "releases").absolute(),
            folder=_made(json_folder) if json_folder else Path(passing),
            pins=parse_pins(pins),
            resume=resume,
        )
        if case is not None:
            say(_bisect(chosen, case, jobs, runner))
            return
        columns = [runner.run(release, choice) for release in chosen]
        if all(column.problem for column in columns):
            first = columns[0]
            raise ReleaseError(f"no release could be run; {first.release}: {first.problem}")
        table = make_table(columns)
    say(as_text(table))
    if markdown is not None:
        write_lines(markdown, as_markdown(table).splitlines())


class _Runner:
    """Runs releases, and reports each on standard error."""

    def __init__(self, *, cache: Path, folder: Path, pins: dict[str, str], resume: bool) -> None:
        self._cache, self._folder, self._pins, self._resume = cache, folder, pins, resume

    def run(self, release: Release, choice: Choice) -> Column:
        """See ``releases.running.run``."""
        file = self._folder.absolute() / f"{release.library}-{release.version}.jsonl"
        if self._resume and file.is_file():
            column = Column(release, read_results(file))
            say(f"{release}: {len(column.results)} cases, from {file}", err=True)
            return column
        say(f"{release}: installing if need be, and running", err=True)
        column = run(release, choice, cache=self._cache, json_file=file, overrides=self._pins)
        say(f"{release}: {column.problem or f'{len(column.results)} cases'}", err=True)
        return column


def _bisect(releases: tuple[Release, ...], text: str, jobs: int | None, runner: _Runner) -> str:
    case = CaseId.parse(text)
    choice = Choice(
        (case.engine,), (case.family,), (case.scenario,), (case.dtype,), (str(case.seed),), jobs
    )

    def judge(release: Release) -> State:
        column = runner.run(release, choice)
        return state_of(column.results[0].verdict if column.results else None)

    change = bisect(releases, judge)
    if change is None:
        return f"{text}: the oldest and the newest release that can run it agree, or too few can"
    return f"{text}: {change.text}"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReleaseError(f"--json: {folder} cannot be made: {error.strerror}") from error
    return folder
