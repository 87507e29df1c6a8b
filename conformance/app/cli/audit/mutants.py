"""``conformance audit mutants``: change a library's code a little; which changes are detected?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from conformance.app.cli.audit.mutant_processes import NO_COMPILE, recorded, tried_by
from conformance.app.cli.cluster_option import Helpers, cluster_option, helpers
from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.options import (
    EXISTING_FILE,
    SECONDS,
    SEED,
    earlier_results,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
    stacked,
)
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.power.mutants.mutant_plan import Plan, Recording, Task, families_of, listed, plan
from conformance.power.mutants.reach import Gap, Map, gaps
from conformance.power.mutants.reviewed import Reviewed, read_reviewed
from conformance.power.mutants.targets import BATCHING, files_of, mutants_in
from conformance.report.jsonl import ResultFile
from conformance.report.mutants import Fate, MutantResult, by_module, read_mutants, tally
from conformance.run.registry import Registry, select

EXIT_UNFINISHED = 2


_MOST = 200


@dataclass(frozen=True)
class Wanted:
    """The command line's options, described by their help texts."""

    libraries: tuple[str, ...]
    modules: tuple[str, ...]
    functions: tuple[str, ...]
    families: tuple[str, ...]
    sample: int | None
    seed: int
    most: int
    minutes: float | None
    again: tuple[Path, ...]
    resume: bool
    reviewed: Path | None
    unreached: bool
    target: Path | None
    sources: tuple[Path, ...]
    jobs: int | None
    cluster: str | None


def _names(option: str, field: str, text: str) -> Any:
    return click.option(option, field, multiple=True, metavar="GLOB", help=text)


_options = stacked(
    _names("--library", "libraries", "mlx_lm, mlx_vlm. Default: both."),
    _names(
        "--module",
        "modules",
        "Files to change, as 'mlx_lm/models/cache.py'. Default: those of batching.",
    ),
    _names("--function", "functions", "Only these functions, as 'BatchKVCache.*'. Default: all."),
    globs("family", "Families whose cases are run. Default: one for each kind of cache."),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Draw mutants of each library until N of them are reached. Default: all mutants.",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, metavar="N"),
    click.option(
        "--most",
        type=click.IntRange(min=1),
        default=_MOST,
        show_default=True,
        metavar="N",
        help="The most schedules to run with one mutant.",
    ),
    click.option(
        "--minutes",
        type=SECONDS,
        metavar="M",
        help="Start no mutant after this time, not counting recording; results so far are kept.",
    ),
    click.option(
        "--again",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Retry the survivors in these results, instead of making mutants.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Keep the results in the file of --json, or in its .partial; try the other mutants.",
    ),
    click.option(
        "--reviewed",
        type=EXISTING_FILE,
        metavar="FILE",
        help="File that names equivalent mutants and functions that no case can run, instead "
        "of the project's own.",
    ),
    click.option("--unreached", is_flag=True, help="Only print the lines that no schedule runs."),
    json_lines(
        "Write one JSON line for each mutant. An interrupted run leaves FILE.partial instead."
    ),
    earlier_results("For equal mutants the last result counts."),
    cluster_option,
    jobs_option(),
    library_path_option,
)


@click.command("mutants")
@_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Change a library's batching code a little, and see whether the checks notice.

    Each mutant is one small change by mutmut's operators, put into a running process around the
    runs of an engine; no file is touched. The schedules that run the changed line are run, the
    cheapest first, until a check finds something new. A survivor is a hole in the checks: exit code
    1. After an interruption or --minutes, the exit code is 2, and the results so far are kept.

    \b
    conformance audit mutants --library mlx_lm --sample 100
    conformance audit mutants --library-path ~/mlx-lm --module mlx_lm/models/cache.py \\
        --function 'MyCache*'
    conformance audit mutants --unreached
    """  # noqa: D301
    console, wanted = new_console(), Wanted(**given)
    target = wanted.target
    if wanted.sources:
        found, ended = read_mutants(wanted.sources), True
        ResultFile(target).finish(found)
    else:
        os.environ[NO_COMPILE] = "1"
        before = _earlier(target) if wanted.resume else ()
        with helpers(wanted.cluster, wanted.jobs) as shared:
            registry = registry_of()
            names = _libraries(registry, wanted)
            libraries = [_Library(registry, name, wanted, console, shared) for name in names]
            if wanted.unreached:
                every = [gap for library in libraries for gap in library.gaps()]
                print_gaps(console, every)
                return
            plans = [library.plan(before) for library in libraries]
            found, ended = _try_all(plans, before, console, target, shared, minutes=wanted.minutes)
    if not found and ended:
        raise ConformanceError("there is nothing to report: no mutant was made")
    print_results(console, found)
    if not ended:
        left = f"; {target}.partial has it: --resume goes on" if target else ""
        console.print(f"unfinished: this is what was found until then{left}", soft_wrap=True)
        ctx.exit(EXIT_UNFINISHED)
    ctx.exit(1 if any(result.fate is Fate.SURVIVED for result in found) else 0)


class _Library:
    """A library's mutants, and which schedules run which of its lines."""

    def __init__(
        self, registry: Registry, name: str, wanted: Wanted, console: Console, shared: Helpers
    ) -> None:
        self._registry, self._name, self._wanted = registry, name, wanted
        own = [glob for glob in wanted.modules if glob.startswith(f"{name}/")]
        self._files = files_of(name, own)
        families = families_of(registry, name, wanted.families)
        # The lines recorded for the batching files also serve other runs.
        files = (files_of(name, ()) if name in BATCHING else {}) | self._files
        recordings = [Recording(name, family, tuple(files)) for family in families]
        self._map = Map(recorded(registry, recordings, console, shared))
        self._reviewed: Reviewed = read_reviewed(wanted.reviewed)

    def plan(self, before: Sequence[MutantResult]) -> Plan:
        """The mutants to try."""
        wanted = self._wanted
        if wanted.again:
            mutants = tuple(listed(read_mutants(wanted.again), self._name))
        else:
            mutants = mutants_in(self._files, wanted.functions)
        return plan(
            self._registry,
            self._name,
            mutants,
            self._map,
            self._reviewed,
            number=wanted.sample,
            seed=wanted.seed,
            most=wanted.most,
            done={result.mutant.key for result in before},
        )

    def gaps(self) -> list[Gap]:
        """The lines that no schedule runs."""
        return [
            gap
            for module, path in self._files.items()
            for gap in gaps(module, path.read_text(encoding="utf-8"), self._map, self._reviewed)
        ]


def _libraries(registry: Registry, wanted: Wanted) -> tuple[str, ...]:
    """The named libraries, else those of the named modules, else all."""
    of_modules = dict.fromkeys(glob.partition("/")[0] for glob in wanted.modules)
    if wanted.libraries:
        return select(registry.libraries, wanted.libraries, what="library")
    return tuple(of_modules) or tuple(BATCHING)


def _try_all(
    plans: Sequence[Plan],
    before: Sequence[MutantResult],
    console: Console,
    target: Path | None,
    shared: Helpers,
    *,
    minutes: float | None,
) -> tuple[tuple[MutantResult, ...], bool]:
    """All results, and whether they are complete: Ctrl-C ends the trials early."""
    file = ResultFile(target)
    found: list[MutantResult] = []

    def add(result: MutantResult) -> None:
        found.append(result)
        file.add(result)

    for result in (*before, *(result for one in plans for result in one.decided)):
        add(result)
    tasks: list[Task] = [task for one in plans for task in one.tasks]
    count = len(found) + len(tasks)
    seconds = minutes * 60 if minutes is not None else None
    with (
        console.status("trying mutants") as status,
        contextlib.closing(tried_by(shared, tasks, seconds=seconds)) as done,
        contextlib.suppress(KeyboardInterrupt),
    ):
        for result in done:
            add(result)
            status.update(f"{len(found)} of {count} mutants")
    ended = len(found) == count
    if ended:
        file.finish(found)
    return tuple(found), ended


def _earlier(target: Path | None) -> tuple[MutantResult, ...]:
    """The results of an unfinished run."""
    if target is None:
        raise ConformanceError("--resume goes on with a file: name it with --json")
    files = [target, target.with_name(f"{target.name}.partial")]
    return read_mutants([file for file in files if file.is_file()])


# The results of mutants, in words and tables -----------------------------------------------------

_TEXT = 160


def print_results(console: Console, results: Sequence[MutantResult]) -> None:
    """All results, for each library separately."""
    for library in sorted({result.library for result in results}):
        own = [result for result in results if result.library == library]
        console.print(table(own, library))
        for line in (*survivors(own), verdict(own, library)):
            console.print(line, soft_wrap=True)


def table(results: Sequence[MutantResult], title: str) -> Table:
    """The number of mutants by module and fate, and the share that was killed.

    The title names the library, so the modules omit it; a fate without mutants is left out.
    """
    met = tally(results).counts
    fates = [fate for fate in Fate if met[fate] or fate in (Fate.KILLED, Fate.SURVIVED)]
    counted = (*fates, "killed of reached")
    made = new_table(title, "module", *counted, right=counted)
    made.columns[0].no_wrap = True
    for module, own in by_module(results).items():
        made.add_row(module.removeprefix(f"{title}/"), *_cells(own, fates))
    made.add_row("all", *_cells(results, fates), style="bold")
    return made


def _cells(results: Sequence[MutantResult], fates: Sequence[Fate]) -> list[str]:
    counts = tally(results)
    share = "" if counts.share is None else f"{counts.share:.1%}"
    return [*(str(counts.counts[fate]) for fate in fates), share]


def survivors(results: Sequence[MutantResult]) -> Iterator[str]:
    """A few lines for each survivor: its place, its change, and how many schedules ran it."""
    found = [result for result in results if result.fate is Fate.SURVIVED]
    for result in sorted(found, key=lambda r: (r.mutant.module, r.mutant.line)):
        mutant = result.mutant
        left = f", {result.unplayed} cases more reach it" if result.unplayed else ""
        yield f"survived: {mutant.module}:{mutant.line} {mutant.function} ({mutant.operator})"
        yield f"  - {_short(mutant.before)}"
        yield f"  + {_short(mutant.after)}"
        yield f"  {result.played} of {result.reaching} schedules played{left}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[: _TEXT - 1]}…"


def verdict(results: Sequence[MutantResult], library: str) -> str:
    """A summary sentence."""
    counts = tally(results)
    word = "OK" if counts.killed == counts.of else "FAILED"
    share = "" if counts.share is None else f" ({counts.share:.1%})"
    return (
        f"{word}: {library}: {counts.killed} of {counts.of} mutants that are reached and not "
        f"equivalent were killed{share}"
    )


def print_gaps(console: Console, found: Sequence[Gap]) -> None:
    """The lines that no schedule runs, each function with the reason that is known."""
    for gap in found:
        why = f": {gap.reason}" if gap.reason else ""
        where = f"{gap.module} {gap.function}: {gap.missing} of {gap.of} lines: {gap.text}"
        console.print(f"unreached: {where}{why}", soft_wrap=True)
    with_reason = sum(gap.missing for gap in found if gap.reason)
    total = sum(gap.missing for gap in found)
    console.print(
        f"{total} lines are not reached in {len(found)} functions; {with_reason} have a reason",
        soft_wrap=True,
    )
