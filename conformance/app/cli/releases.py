"""``conformance releases``: run the ladder in several releases of a library."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from conformance.app.cli.cluster_option import cluster_option, helpers
from conformance.app.cli.options import globs, jobs_option, new_file
from conformance.app.cli.printing import say
from conformance.app.cli.release_runner import Runner, environments, release_options
from conformance.core.errors import ReleaseError
from conformance.core.verdict import CaseId
from conformance.report.history import State, state_of
from conformance.report.jsonl import write_lines
from conformance.run.selection import DTYPES
from conformance.tools.releases.bisection import bisect
from conformance.tools.releases.environments import kept, remove
from conformance.tools.releases.pins import Release, parse, parse_pins
from conformance.tools.releases.release_run import Choice, Column
from conformance.tools.releases.release_table import as_markdown, as_text, make_table

_MB = 1e6


@click.command("releases")
@click.argument("releases", nargs=-1, metavar="LIBRARY==V,V,...")
@globs("engine", "As for `run`. Default: all of the library, except servers.")
@globs("family", "As for `run`.")
@globs("scenario", "As for `run`.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="As for `run`.")
@click.option(
    "--caches",
    type=click.Choice(["also", "only", "no"]),
    default="also",
    show_default=True,
    help="Test the cache classes of each release, too, only, or not, as `audit caches` does.",
)
@cluster_option
@jobs_option("As for `run`.")
@release_options
@new_file("--markdown", "markdown", "Also write the table as Markdown.")
@click.option(
    "--clean",
    is_flag=True,
    help="Only list the stored environments with their sizes, and delete them.",
)
@click.option(
    "--bisect",
    "case",
    metavar="CASE_ID",
    help="Only find the release that changed this case, running as few releases as possible.",
)
def command(
    *,
    releases: tuple[str, ...],
    engines: tuple[str, ...],
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    dtypes: tuple[str, ...],
    caches: str,
    cluster: str | None,
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
    """Compare releases of a library: which release introduced each defect, which fixed it.

    Each release is installed into its own environment, with versions of mlx and transformers that
    work with it, and runs the same cases there. A library without versions means all its known
    releases. Expectations do not apply: they describe the current releases.

    \b
    conformance releases mlx-lm==0.31.2,0.31.3,0.32.2 --family 'qwen3*'
    conformance releases mlx-lm==0.30.4,0.30.5 --caches only
    conformance releases mlx-lm --bisect mlx_lm/qwen3_5/ragged/float32/0
    conformance releases --clean
    """  # noqa: D301
    folder = (cache_dir or environments()).absolute()
    if clean:
        _clean(folder)
        return
    if not releases:
        raise ReleaseError("name releases, for example mlx-lm==0.31.2,0.31.3, or give --clean")
    chosen = parse(releases)
    if resume and (json_folder is None or case is not None):
        raise ReleaseError("--resume needs --json DIR, where the results are, and no --bisect")
    if cluster and cache_dir:
        raise ReleaseError("--cluster: each machine has a folder of its own: leave --cache-dir out")
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
    with (
        tempfile.TemporaryDirectory(prefix="conformance-releases-") as passing,
        helpers(cluster, jobs) as shared,
    ):
        runner = Runner(
            shared,
            cache=folder,
            folder=_made(json_folder) if json_folder else Path(passing),
            pins=parse_pins(pins),
            resume=resume,
        )
        if case is not None:
            say(_bisect(chosen, case, choice, runner))
            return
        columns = runner.run_all(chosen, choice)
        _check_any(columns)
        table = make_table(columns)
    say(as_text(table))
    if markdown is not None:
        write_lines(markdown, as_markdown(table).splitlines())


def _check_any(columns: list[Column]) -> None:
    """Raise an error if no release could be run."""
    if all(column.empty for column in columns):
        first = columns[0]
        raise ReleaseError(f"no release could be run; {first.release}: {first.problem}")


def _bisect(releases: tuple[Release, ...], text: str, choice: Choice, runner: Runner) -> str:
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
        columns.extend(runner.run_all((release,), one))
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
