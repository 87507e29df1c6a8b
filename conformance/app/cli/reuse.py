"""Which selected cases ``conformance run`` runs: options, the plan, the last failures."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from conformance.app.cli.options import EXISTING_FILE, stacked
from conformance.app.cli.printing import say
from conformance.app.pytest_plugin.result_collector import not_played
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.sealed import write_cached
from conformance.report import Outcome
from conformance.report.jsonl import read_results
from conformance.report.outcome import listed
from conformance.run.coverage import account
from conformance.run.reuse.checkouts import changed_modules
from conformance.run.reuse.planning import Plan, Reuse
from conformance.run.unexercised import unexercised

F = TypeVar("F", bound=Callable[..., Any])

_LAST_RUN = ""
_NAMED = 5  # changed modules in a warning
_FAILURES = "last_failed.json"


@dataclass(frozen=True)
class Chosen:
    """The options that select cases to run.

    Attributes:
        fresh: run all selected cases.
        changed: commit of the library's checkout; empty: the last run; ``None``: not given.
        since: results of an older run.
        last_failed: run only the cases that failed the last time.
    """

    fresh: bool = False
    changed: str | None = None
    since: Path | None = None
    last_failed: bool = False

    def plan(self, setup: Setup) -> Plan:
        """The plan: which of the selected cases to run.

        Raises:
            ConformanceError: a file cannot be read, or ``changed`` names no commit.
        """
        cases = setup.selected
        if self.fresh or setup.settings.checkpoint is not None:
            return Plan(cases)
        store = setup.result_store()
        if store.unused:
            say(store.unused, err=True)
        reuse = Reuse(setup.registry, store, setup.selection.tier.name, setup.judge.judged_again)
        if self.last_failed:
            return _failed_last(cases, reuse, remembered_failures(setup.result_folder))
        if self.since is not None:
            failed = remembered_failures(setup.result_folder)
            return reuse.since(cases, read_results(self.since), failed)
        if self.changed is None:
            return reuse.plan(cases)
        if self.changed == _LAST_RUN:
            return reuse.changed(cases)
        names = {name for lib in setup.libraries for name in changed_modules(lib, self.changed)}
        plan = reuse.touched(cases, names)
        if names and len(plan.play) == len(cases) > 1:
            named = listed(sorted(names), _NAMED)
            say(f"--changed {self.changed} leaves nothing out: all depend on {named}", err=True)
        return plan


def reuse_options(function: F) -> F:
    """The options; passed to the command as ``chosen``."""

    @functools.wraps(function)
    def call(
        *args: Any,
        fresh: bool,
        changed: str | None,
        since: Path | None,
        last_failed: bool,
        **more: Any,
    ) -> Any:
        if sum((fresh, changed is not None, since is not None, last_failed)) > 1:
            raise click.UsageError("--fresh, --changed, --since and --lf: choose one of them")
        return function(*args, chosen=Chosen(fresh, changed, since, last_failed), **more)

    return stacked(
        click.option(
            "--fresh",
            is_flag=True,
            help="Rerun all selected cases. Without it, a case is rerun only if something it "
            "depends on has changed; otherwise its last result is used.",
        ),
        click.option(
            "--changed",
            is_flag=False,
            flag_value=_LAST_RUN,
            metavar="[REF]",
            help="Run only cases that depend on something changed since they were last run; with "
            "REF: on a module that differs from that commit of the library's checkout.",
        ),
        click.option(
            "--since",
            type=EXISTING_FILE,
            metavar="FILE",
            help="Run only cases that depend on something changed since these results.",
        ),
        click.option(
            "--lf",
            "--last-failed",
            "last_failed",
            is_flag=True,
            help="Run only the selected cases that were not as expected in their last run; if "
            "there are none, run all.",
        ),
    )(cast("F", call))


@contextlib.contextmanager
def case_file(cases: Iterable[CaseId]) -> Iterator[Path]:
    """A temporary file of case ids, one per line, for the processes that run them."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        path = Path(folder, "cases.txt")
        path.write_text("".join(f"{case}\n" for case in cases), encoding="utf-8")
        yield path


def reused_outcome(setup: Setup, plan: Plan) -> Outcome:
    """The outcome if nothing is run now, even if cases remain to be run."""
    order = {str(case): index for index, case in enumerate(setup.selected)}
    results = tuple(sorted(plan.reused, key=lambda result: order[result.case]))
    problems = list(not_played(setup.settings, setup.registry, results))
    if setup.selection.leads:
        problems += filter(None, (account(setup.registry, x).problem for x in setup.libraries))
    whole = not (plan.left_out or plan.play)
    if setup.expectations is not None and setup.complete and whole:
        problems += setup.expectations.stale(results, whole=True)
    unused = unexercised(setup.registry, setup.selection, results) if whole else ()
    return Outcome(
        results,
        scenarios=tuple(setup.registry.scenarios),
        problems=tuple(problems),
        missing=len(plan.play),
        notes=(*setup.selection.shard.notes, *unused),
    )


def remember_failures(folder: Path, results: Sequence[CaseResult]) -> None:
    """Remember which cases failed, including cases of older runs that were not rerun."""
    ran = {result.case for result in results}
    failed = (remembered_failures(folder) - ran) | {r.case for r in results if not r.expected}
    with contextlib.suppress(OSError):  # a run works without it
        write_cached(folder.parent / _FAILURES, msgspec.json.encode(sorted(failed)))


def _failed_last(cases: Sequence[CaseId], reuse: Reuse, failed: Collection[str]) -> Plan:
    play = tuple(case for case in cases if str(case) in failed)
    left = reuse.last(case for case in cases if str(case) not in failed)
    return Plan(play, left_out=left) if play else Plan(tuple(cases))


def remembered_failures(folder: Path) -> set[str]:
    """The ids of all cases that were not as expected in their last run."""
    try:
        return msgspec.json.decode((folder.parent / _FAILURES).read_bytes(), type=set[str])
    except (OSError, msgspec.MsgspecError):
        return set()
