"""``conformance known lock``: the smallest schedule of each known defect, run or searched."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import click
import msgspec

from conformance.app.cli.options import (
    MINUTES,
    SECONDS,
    globs,
    jobs_option,
    library_path_option,
    new_file,
)
from conformance.app.cli.parallel import as_they_come, in_processes
from conformance.app.cli.printing import say
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.entries import matches
from conformance.checks.expectations.loading import OWN
from conformance.checks.expectations.lock import (
    Locked,
    PlayedLock,
    lock_file,
    newest_lock,
    read_lock,
    write_lock,
)
from conformance.core.errors import ExpectationError
from conformance.core.library_source import source_of, versions_of
from conformance.core.output_files import write_whole
from conformance.core.verdict import CaseId, Verdict
from conformance.report import duration
from conformance.report.outcome import count
from conformance.run.mending import Mending
from conformance.run.registry import select
from conformance.scenarios.features import needed
from conformance.tools.releases import locking
from conformance.tools.releases.locking import (
    Missing,
    Place,
    Search,
    obstacle,
    places_of,
    searched,
)


@click.command("lock")
@click.argument("entries", nargs=-1, metavar="[ID]...")
@globs("family", "Only these. Default: what is stored; with --write, the families for all others.")
@click.option(
    "--write",
    is_flag=True,
    help="Search a schedule for each entry that has none, or whose schedule no longer shows it, "
    "and store it.",
)
@click.option(
    "--seconds",
    type=SECONDS,
    default=locking.SECONDS,
    show_default=True,
    help="With --write: how long to search for one entry in one family.",
)
@click.option(
    "--minutes",
    type=MINUTES,
    help="With --write: begin no search after this time. Default: no limit.",
)
@jobs_option()
@library_path_option
@new_file("--json", "file", "Also write the verdict of each schedule that was run.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    entries: tuple[str, ...],
    families: tuple[str, ...],
    write: bool,
    seconds: float,
    minutes: float | None,
    jobs: int | None,
    file: Path | None,
) -> None:
    """Play the stored smallest schedules of known defects, or search and store them.

    Each schedule is run as released, where it must fail with the stored verdict, and with the
    entry's defect mended, where it must be right. The lock file of the installed release in
    `expectations/lock/` has them; for a release without one, the file of the release before it is
    used. Entries without a schedule are listed. Exit code 1 if a schedule does not show its entry.

    \b
    conformance known lock                                     all that are stored
    conformance known lock mamba-padded-state                  one entry's
    conformance known lock 'rope-*' --write --seconds 40       search those that are missing
    """  # noqa: D301
    begun = time.monotonic()
    setup = _setup()
    if write:
        _refuse_checkouts()
    known = _known()
    chosen = [known[name] for name in select(known, entries, what="known defect")]
    there = [
        line
        for line in _stored(chosen)
        if line.entry in {entry.id for entry in chosen}
        if not families or matches(line.family, families)
        # A release's environment may have the other library without the plugin for it.
        if CaseId.parse(line.case).engine in setup.registry.engines
    ]
    played = list(_played(there, jobs))
    for one in played:
        say(_played_text(one))
    if file is not None:
        write_whole(file, json.dumps(msgspec.to_builtins(played), indent=1))
    if write:
        until = begun + 60 * minutes if minutes else None
        _write(setup, chosen, families, played, seconds=seconds, until=until, jobs=jobs)
    having = {line.entry for line in _stored(chosen)}
    for text in _lacking(setup, [entry for entry in chosen if entry.id not in having]):
        say(text)
    said = f"{len(having & set(known))} of {count(len(chosen), 'known defect')}"
    say(f"{said} with a schedule of their own; {duration(time.monotonic() - begun)}", err=True)
    ctx.exit(0 if write or all(one.shows for one in played) else 1)


def _refuse_checkouts() -> None:
    """Raises ``ExpectationError`` if a library is a checkout, which is no release."""
    for library in ("mlx-lm", "mlx-vlm"):
        if (source := source_of(library)) is not None:
            raise ExpectationError(f"--write: {library} is {source.text}, which is no release")


def _stored(entries: Iterable[Defect]) -> list[Locked]:
    """The lines of the installed releases of what the entries are about."""
    found: list[Locked] = []
    for package in dict.fromkeys(entry.package for entry in entries):
        path = newest_lock(OWN, package, versions_of(package).get(package, "0"))
        found += read_lock(path) if path is not None else ()
    wanted = {entry.id for entry in entries}
    return [line for line in found if line.entry in wanted]


# In worker processes -----------------------------------------------------------------------------


@cache
def _setup() -> Setup:
    """The session of this process, made once; families stay loaded in it."""
    return make_setup(Settings(engines=("*",)))


@cache
def _mending() -> Mending:
    return Mending(_setup().session)


def _expectations() -> Expectations:
    return _setup().expectations or Expectations()


def _known() -> dict[str, Defect]:
    return {entry.id: entry for entry in _expectations().defects}


def _play(line: Locked) -> PlayedLock:
    return _result(line, _mending().verdict_of(line, _known()))


def _result(line: Locked, verdict: Verdict) -> PlayedLock:
    return PlayedLock(line.entry, line.case, line.verdict, verdict)


@dataclass(frozen=True)
class _Try:
    """What a worker process needs for one search."""

    place: Place
    seconds: float
    until: float | None


def _search(work: _Try) -> Search | None:
    """The outcome; ``None`` if there is no time left to begin."""
    if work.until is not None and time.monotonic() > work.until:
        return None
    place = work.place
    others = [
        entry
        for entry in _known().values()
        if entry.id != place.entry.id
        and place.cases
        and entry.is_about(place.cases[0].engine, place.family)
    ]
    return searched(_setup().session, _mending(), place, others, seconds=work.seconds)


# What is said, and stored ------------------------------------------------------------------------


def _played(lines: Sequence[Locked], jobs: int | None) -> Iterator[PlayedLock]:
    ordered = sorted(lines, key=lambda line: (CaseId.parse(line.case).engine, line.family))
    ended = partial(_result, verdict=Verdict.CRASH)
    yield from in_processes(_play, ordered, jobs=jobs, on_crash=ended)


def _played_text(one: PlayedLock) -> str:
    said = f"still {one.verdict}" if one.shows else f"{one.verdict}, was {one.locked}"
    return f"{one.entry}: {said} in {CaseId.parse(one.case).family}"


def _write(
    setup: Setup,
    entries: Sequence[Defect],
    families: Sequence[str],
    played: Sequence[PlayedLock],
    *,
    seconds: float,
    until: float | None,
    jobs: int | None,
) -> None:
    """Search what no schedule shows, and store what is found after each search."""
    right = {one.place for one in played if one.shows}
    work = [
        _Try(place, seconds, until)
        for place in places_of(setup.registry, _expectations(), entries, families)
        if not place.cases or (place.entry.id, place.cases[0].engine, place.family) not in right
    ]
    late = 0
    crashed = lambda one: Search(one.place, None, Missing.ENDS, 0.0)  # noqa: E731
    for _, found in as_they_come(_search, work, jobs=jobs, on_crash=crashed):
        if found is None:
            late += 1
            continue
        place = found.place
        head = f"{place.entry.id}{f' in {place.family}' if place.family else ''}"
        if found.line is None:
            say(f"{head}: no schedule: {found.why} ({found.seconds:.0f} s)")
            continue
        needs = ", ".join(needed(found.line.schedule))
        say(f"{head}: {found.line.verdict} with {needs} ({found.seconds:.0f} s)")
        package = place.entry.package
        path = lock_file(OWN, package, versions_of(package)[package])
        write_lock(path, [*read_lock(path), found.line])
    if late:
        say(f"not searched, as time was up: {late}", err=True)


def _lacking(setup: Setup, entries: Sequence[Defect]) -> Iterator[str]:
    """A line for each reason why entries have no schedule, with their ids."""
    why: dict[str, list[str]] = {}
    for entry in entries:
        for place in places_of(setup.registry, _expectations(), [entry])[:1]:
            reason = obstacle(setup.registry, _mending(), place) or "none is stored"
            why.setdefault(reason, []).append(entry.id)
    for reason, names in sorted(why.items(), key=lambda pair: -len(pair[1])):
        yield f"no schedule, {reason}: {len(names)}: {', '.join(names)}"
