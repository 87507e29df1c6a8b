"""``conformance known refresh``: what a person must read about a new release, on one page."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from conformance.app.cli.cluster_option import helpers
from conformance.app.cli.options import cores, globs, jobs_option, new_file
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.app.cli.release_runner import Runner, environments, release_options
from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.loading import OWN, SHOWN
from conformance.checks.expectations.lock import (
    PlayedLock,
    lock_file,
    newest_lock,
    read_lock,
    write_lock,
)
from conformance.core.errors import ReleaseError
from conformance.core.family import Family
from conformance.core.library_source import source_of, versions_of
from conformance.core.output_files import write_whole
from conformance.core.user_files import typed_json
from conformance.report import duration
from conformance.report.cascades import Explanations
from conformance.report.jsonl import write_lines
from conformance.report.message import worst
from conformance.report.pages.material import read_explanations
from conformance.run.registry import Registry, select
from conformance.tools.releases.environments import Environment, prepare
from conformance.tools.releases.pins import Pins, Release, before, parse, parse_pins
from conformance.tools.releases.refreshing import (
    Code,
    Refreshed,
    page,
    refreshed,
    touched,
    with_release,
)
from conformance.tools.releases.release_run import Choice, Column, problem_of

_EXPLAINED = 5
_EXPLAIN_SECONDS = 60.0
_LOCK_SECONDS = 600.0


@click.command("refresh")
@click.option(
    "--library",
    "text",
    required=True,
    metavar="LIBRARY==VERSION",
    help="The new release, for example mlx-vlm==0.7.11.",
)
@click.option(
    "--from",
    "older",
    metavar="VERSION",
    help="The release to compare its code with. Default: the installed one, or else the newest "
    "older one of the table of pins.",
)
@globs("engine", "As for `run`. Default: the library's batch generator.")
@globs("family", "As for `run`. Default: the families whose modules changed.")
@globs("scenario", "As for `run`.")
@click.option(
    "--tier",
    type=click.Choice(["quick", "default", "full"]),
    default="quick",
    show_default=True,
    help="As for `run`.",
)
@jobs_option("As for `run`.")
@release_options
@new_file("--page", "file", "Also write the page as Markdown.")
@click.option(
    "--write",
    is_flag=True,
    help=f"Record in {SHOWN} of `expectations/` which known defects the release still has; later "
    "runs of the release then require them.",
)
def command(
    *,
    text: str,
    older: str | None,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    tier: str,
    jobs: int | None,
    timeout: float | None,
    json_folder: Path | None,
    resume: bool,
    file: Path | None,
    write: bool,
    pins: tuple[str, ...],
    cache_dir: Path | None,
) -> None:
    """Sort the known defects by what a new release shows: what to read, on one page.

    Installs the release into an environment of its own, runs the cases whose modules changed there,
    and sorts the entries of `expectations/`: still there, fixed, changed. New failures are grouped
    by cause and explained. Entries are bound to functions, so other code may move.

    \b
    conformance known refresh --library mlx-vlm==0.7.10 --page release.md
    conformance known refresh --library mlx-lm==0.32.1 --from 0.32.2 --family 'qwen3*'
    """  # noqa: D301
    if resume and json_folder is None:
        raise ReleaseError("--resume needs --json DIR, where the results are")
    release = _one(text)
    old = before(release, older or _installed(release))
    begun, cache = time.monotonic(), (cache_dir or environments()).absolute()
    choice = Choice(
        engines or (release.engine,),
        families,
        scenarios,
        jobs=jobs,
        timeout=timeout,
        tier=tier,
        judged=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="conformance-known-") as passing,
        helpers(None, jobs) as shared,
    ):
        folder, wanted = json_folder or Path(passing), parse_pins(pins)
        folder.mkdir(parents=True, exist_ok=True)
        runner = Runner(shared, cache=cache, folder=folder, pins=wanted, resume=resume)
        sorted_ = _sorted(runner, release, old, choice, cache=cache, pins=wanted)
    lines = page(sorted_)
    say("\n".join(lines))
    say(f"\n{sorted_.to_read} items to read; {duration(time.monotonic() - begun)}", err=True)
    if file is not None:
        write_lines(file, lines)
    if write:
        _write(sorted_)


def _sorted(
    runner: Runner, release: Release, old: Release, choice: Choice, *, cache: Path, pins: Pins
) -> Refreshed:
    """The entries and new failures of a release, of the families that it touches."""
    registry = registry_of()
    environment = prepare(release, pins.beside(release), cache)
    code = _code_of(environment, release)
    families = _families(registry, release, choice.families)
    found = touched(_code(old, cache, pins), code, families)
    column = Column(release)
    if found.families:
        own = dataclasses.replace(choice, families=found.families)
        (column,) = runner.run_all([release], own)
        if column.empty:
            raise ReleaseError(f"{release} {column.problem}")
    sort = functools.partial(
        refreshed,
        release,
        old,
        found,
        code,
        entries=load_expectations().defects,
        results=column.results,
        order=tuple(registry.scenarios),
        problem=column.problem,
        locked=_locked(environment, found.families, choice.jobs),
    )
    first = sort()
    return sort(explanations=_explained(environment, first)) if first.new else first


def _one(text: str) -> Release:
    found = parse([text])
    if len(found) != 1 or "==" not in text:
        raise ReleaseError(f"--library {text}: name one release, for example mlx-vlm==0.7.10")
    return found[0]


def _installed(release: Release) -> str:
    """The installed version of the library, if it is another release; else empty."""
    version = versions_of(release.library).get(release.library, "")
    other = version != release.version and source_of(release.library) is None
    return version if other else ""


def _code(release: Release, cache: Path, pins: Pins) -> Code:
    """The release's code: installed here, or in an environment of its own."""
    if release.version == versions_of(release.library).get(release.library):
        spec = importlib.util.find_spec(release.engine)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            return Code(Path(folder))
    return _code_of(prepare(release, pins.beside(release), cache), release)


def _code_of(environment: Environment, release: Release) -> Code:
    found = environment.python.parents[1].glob(f"lib/python*/site-packages/{release.engine}")
    for folder in found:
        return Code(folder)
    raise ReleaseError(f"{release} has no package {release.engine}")


def _families(registry: Registry, release: Release, names: tuple[str, ...]) -> list[Family]:
    own = {f.name: f for (library, _), f in registry.families.items() if library == release.engine}
    return [own[name] for name in select(own, names, what="family")]


def _explained(environment: Environment, found: Refreshed) -> Explanations:
    """Explanations of the first new failures, made with the release."""
    with tempfile.TemporaryDirectory(prefix="conformance-known-") as folder:
        for number, cascade in enumerate(found.new[:_EXPLAINED]):
            finding = worst(cascade.first)
            if finding is None or not finding.schedule:
                continue
            say(f"explaining {cascade.first.case}", err=True)
            into = str(Path(folder) / f"{number}.json")
            words = ["explain", cascade.first.case, "--schedule", finding.schedule, "--json", into]
            environment.run(["-m", "conformance", *words], _EXPLAIN_SECONDS)
        return read_explanations(Path(folder))


def _locked(
    environment: Environment, families: Sequence[str], jobs: int | None
) -> tuple[PlayedLock, ...]:
    """What the stored schedules of these families show with the release."""
    if not families:
        return ()
    with tempfile.TemporaryDirectory(prefix="conformance-known-") as folder:
        into = Path(folder) / "lock.json"
        # Two at least: a schedule that ends its process is then lost alone.
        words = ["known", "lock", "--json", str(into), "--jobs", str(max(2, jobs or cores()))]
        named = [word for family in families for word in ("--family", family)]
        done = environment.run(["-m", "conformance", *words, *named], _LOCK_SECONDS)
        if not into.is_file():
            why = problem_of(done, _LOCK_SECONDS)
            say(f"the stored schedules were not run: {why}", err=True)
            return ()
        return typed_json(into.read_bytes(), tuple[PlayedLock, ...], str(into), ReleaseError)


def _write(found: Refreshed) -> None:
    path = OWN / SHOWN
    text = json.dumps(with_release(path, found), indent=1, sort_keys=True) + "\n"
    write_whole(path, text)
    say(f"{path}: written", err=True)
    release = found.release
    older = newest_lock(OWN, release.library, release.version)
    own = lock_file(OWN, release.library, release.version)
    shown = {one.place for one in found.locked if one.shows}
    if older is not None and shown:
        lines = [line for line in read_lock(older) if line.place in shown]
        write_lock(own, [*read_lock(own), *lines])
        say(f"{own}: written", err=True)
