"""Runs the cases that ``conformance run`` has selected, and prints and writes the results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from conformance.app.cli.auto_explain import FIRST_SECONDS, with_explanations
from conformance.app.cli.cluster_option import on_cluster
from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import cores
from conformance.app.cli.output_options import Output
from conformance.app.cli.printing import say
from conformance.app.cli.progress import Progress
from conformance.app.cli.pytest_call import call_pytest
from conformance.app.cli.reuse import (
    Chosen,
    case_file,
    remember_failures,
    remembered_failures,
    reused_outcome,
)
from conformance.app.pytest_plugin.run_end import STOPPED, about
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import Expectations
from conformance.core.invocation import this_invocation
from conformance.report import Outcome
from conformance.report.jsonl import write_results
from conformance.report.left_out import LeftOut
from conformance.report.pages.material import Material, merged
from conformance.report.pages.site import write_site
from conformance.report.worsening import Base
from conformance.run.coverage import defects_upstream, take_inventory
from conformance.run.reuse.planning import Plan

# Processes for each core, if all cases wait for servers more than half of the time.
_WAITING = 2


@dataclass(frozen=True)
class SuiteRun:
    """One call of the command.

    Attributes:
        chosen: selects the cases to run.
        jobs: worker processes; ``None``: one for each core, or two
            where all cases wait for servers. 1: run all cases in this process.
        exitfirst: stop at the first unexpected verdict.
        output: what to print and write.
        report: folder for pages, if wanted.
        explain_seconds: limit for explaining the lowest new failure of each family; ``None``: the
            first of all is explained.
        began: start of the command, by ``time.perf_counter``.
        base: an earlier run to compare with, in place of the known defects.
        cluster: address of the scheduler whose workers run the cases; ``None``: this machine.
    """

    settings: Settings
    chosen: Chosen
    jobs: int | None
    exitfirst: bool
    output: Output
    report: Path | None
    explain_seconds: float | None
    began: float = dataclasses.field(default_factory=time.perf_counter)
    base: Base | None = None
    cluster: str | None = None

    def __call__(self) -> int:
        """Run the cases, or use their stored results; return the exit code."""
        setup = make_setup(self.settings)
        nothing = not setup.cases  # an empty selection is an error, without notes before it
        for line in (*setup.notes, *setup.sweep()):
            say(line, err=True)
        if nothing:
            return self._nothing(setup)
        plan = self.chosen.plan(setup)
        stopped = self.exitfirst and any(not result.expected for result in plan.reused)
        return self._reuse(setup, plan) if stopped or not plan.play else self._play(setup, plan)

    def _play(self, setup: Setup, plan: Plan) -> int:
        """Run the suite under pytest."""
        groups = {setup.group_of(case) for case in plan.play}
        waits = all(setup.registry.waits(case) for case in plan.play)
        workers = min(self.jobs or (_WAITING if waits else 1) * cores(), len(groups))
        console = new_console()
        progress = Progress(
            console, self.output.verbosity, plan.reused, self.base, processes=max(1, workers)
        )
        with case_file(plan.play) as file:
            given = self._settings(file)
            if self.cluster is not None:
                played = on_cluster(self.cluster, given, progress, exitfirst=self.exitfirst)
            else:
                played = call_pytest(
                    given,
                    workers=0 if self.jobs == 1 else workers,
                    exitfirst=self.exitfirst,
                    plugins=[progress],
                )
        code, text = played
        left_out = self._left_out(setup, plan)
        end, outcome = progress.end(), progress.outcome()
        if code == pytest.ExitCode.INTERRUPTED and (end is None or end.interrupted):
            if end is None or not end.done:
                say("interrupted: no case was run", err=True)
        elif end is None or not end.whole or not end.done:
            say(text, err=True)
        code = end.exit_code(code) if end else int(pytest.ExitCode.INTERRUPTED)
        if outcome is not None and outcome.results:
            ended = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            shown = self._finish(setup, self._timed(outcome), left_out, console, explain=ended)
            if ended and (self.base or code == pytest.ExitCode.OK):
                code = int(not shown.ok)  # pytest does not know the earlier run
        if code == pytest.ExitCode.INTERRUPTED:
            return code
        held = setup.hold_goldens()
        for line in (line for one in held for line in one.messages):
            say(f"golden: {line}")
        return code or int(not all(one.good for one in held))

    def _settings(self, cases: Path) -> Settings:
        """The suite's settings: the planned cases; ``--fresh`` uses no stored streams."""
        kept = self.settings.oracle_cache and not self.chosen.fresh
        return dataclasses.replace(self.settings, cases=cases, keep=True, oracle_cache=kept)

    def _reuse(self, setup: Setup, plan: Plan) -> int:
        """Print stored results: nothing is left to run, or a stored failure ends it (``-x``)."""
        outcome, left_out = reused_outcome(setup, plan), self._left_out(setup, plan)
        outcome = _as_asked_now(outcome, self.settings.rerun_options)
        if self.settings.json:
            header = msgspec.structs.replace(
                about(setup, this_invocation().started),
                planned=len(outcome.results) + outcome.missing,
                stopped=STOPPED if plan.play else "",
            )
            write_results(self.settings.json, outcome.results, header)
        console = new_console()
        shown = self._finish(setup, self._timed(outcome), left_out, console, explain=True)
        if shown.ok and not shown.results and left_out.unknown:
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        return int(not shown.ok)

    def _timed(self, outcome: Outcome) -> Outcome:
        return dataclasses.replace(outcome, seconds=time.perf_counter() - self.began)

    def _left_out(self, setup: Setup, plan: Plan) -> LeftOut:
        """The cases that the plan leaves out, with their results in earlier runs."""
        return LeftOut.of(plan.left_out, remembered_failures(setup.result_folder))

    def _finish(
        self,
        setup: Setup,
        outcome: Outcome,
        left_out: LeftOut,
        console: Console,
        *,
        explain: bool,
    ) -> Outcome:
        """Explain, print and write; checkpoints are not explained by default.

        Returns the printed outcome: with an earlier run, only what is worse is unexpected.
        Failures, including those of older results, are remembered for --lf.
        """
        remember_failures(setup.result_folder, outcome.results)
        shown = outcome
        if self.base:
            left_out = left_out.judged(self.base.judged)
            # Cases that are left out lose no coverage.
            shown = self.base.seen(
                outcome, lambda case: setup.selects(case) and str(case) not in left_out.last
            )
        shown = dataclasses.replace(
            shown,
            unchanged=len(left_out.last),
            problems=shown.problems + left_out.problems,
            notes=shown.notes + left_out.notes,
        )
        if explain and self.settings.checkpoint is None:
            shown = with_explanations(
                shown,
                setup.registry.scenarios,
                seconds=FIRST_SECONDS if self.explain_seconds is None else self.explain_seconds,
                most=1 if self.explain_seconds is None else None,
                jobs=self.jobs or cores(),
                options=self.settings.family_options,
            )
        self.output.finish(shown, console)
        if self.report is not None:
            explained = dataclasses.replace(
                outcome, explanations=shown.explanations, problems=shown.problems
            )
            _write_report(self.report, explained, setup)
        return shown

    def _nothing(self, setup: Setup) -> int:
        """Handle an empty shard."""
        shard = self.settings.shard
        say(f"shard {shard} has no cases: there are fewer families than shards")
        if self.settings.json:
            write_results(self.settings.json, (), about(setup, this_invocation().started))
        self.output.write_junit(Outcome(()))
        return 0


def _as_asked_now(outcome: Outcome, options: Sequence[str]) -> Outcome:
    """Stored results, with the options of this call for the commands about their cases."""
    return dataclasses.replace(
        outcome,
        results=tuple(
            msgspec.structs.replace(
                result, invocation=msgspec.structs.replace(result.invocation, options=options)
            )
            if result.invocation
            else result
            for result in outcome.results
        ),
    )


def _write_report(folder: Path, outcome: Outcome, setup: Setup) -> None:
    found = merged([outcome.results])
    inventory = take_inventory(setup.registry, found)
    material = Material(
        found,
        inventory,
        explanations=outcome.explanations,
        missing=outcome.missing,
        problems=outcome.problems,
        defects=defects_upstream(setup.registry, setup.expectations or Expectations()),
    )
    write_site(folder, material)
    say(f"report: {folder / 'index.html'}")
