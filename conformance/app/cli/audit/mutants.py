"""``conformance audit mutants``: change a library's code a little; which changes are detected?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.audit.mutant_options import Wanted, mutant_options
from conformance.app.cli.audit.mutant_parts import NO_COMPILE, tried_by
from conformance.app.cli.audit.mutants_table import print_gaps, print_results
from conformance.app.cli.audit.recorded_lines import recorded
from conformance.app.cli.cluster_option import Helpers, helpers
from conformance.app.cli.consoles import new_console
from conformance.app.cli.outputs import writable
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.power.mutants.mutant_plan import Plan, Recording, Task, families_of, listed, plan
from conformance.power.mutants.reach import Map
from conformance.power.mutants.reviewed import Reviewed, read_reviewed
from conformance.power.mutants.targets import BATCHING, files_of, mutants_in
from conformance.power.mutants.unreached import Gap, gaps
from conformance.report.jsonl import ResultFile
from conformance.report.mutants import Fate, MutantResult, encode, read_mutants
from conformance.run.registry import Registry, select

EXIT_UNFINISHED = 2


@click.command("mutants")
@mutant_options
@click.pass_context
def command(ctx: click.Context, *, wanted: Wanted) -> None:
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
    console = new_console()
    target = writable(wanted.json_file, "--json") if wanted.json_file else None
    if wanted.sources:
        found, ended = read_mutants(wanted.sources), True
        if target:
            ResultFile(target, encode).finish(found)
    else:
        os.environ[NO_COMPILE] = "1"
        before = _earlier(target) if wanted.resume else ()
        with helpers(wanted.cluster, wanted.jobs) as shared:
            registry = registry_of()
            names = _libraries(registry, wanted)
            libraries = [_Library(registry, name, wanted, console, shared) for name in names]
            if wanted.unreached:
                every = [gap for library in libraries for gap in library.gaps()]
                print_gaps(console, every, every=True)
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
    file = ResultFile(target, encode) if target else None
    found: list[MutantResult] = []

    def add(result: MutantResult) -> None:
        found.append(result)
        if file is not None:
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
    if file is not None and ended:
        file.finish(found)
    return tuple(found), ended


def _earlier(target: Path | None) -> tuple[MutantResult, ...]:
    """The results of an unfinished run.

    Raises:
        ConformanceError: no file is given.
    """
    if target is None:
        raise ConformanceError("--resume goes on with a file: name it with --json")
    files = [target, target.with_name(f"{target.name}.partial")]
    return read_mutants([file for file in files if file.is_file()])
