"""Explains the lowest new failure of each family at the end of a run, in child processes."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conformance.app.cli.printing import say
from conformance.core.invocation import command_about
from conformance.core.library_paths import MODULES
from conformance.core.library_source import versions_of
from conformance.core.memory_limit import fair_limit
from conformance.core.processes import Child, start
from conformance.core.verdict import CaseResult, Verdict
from conformance.report import Outcome, duration
from conformance.report.explanation import Explanation
from conformance.report.message import options_of, worst
from conformance.report.outcome import count
from conformance.report.pages.material import read_explanations
from conformance.scenarios import Scenario

EXPLAIN_SECONDS = 60.0
"""Time limit for all explanations of one run."""

FIRST_SECONDS = 10.0
"""Time limit for the explanation of the first failure alone, where no limit was chosen."""

_CHILD = "from conformance.app.cli.main import main_of_child; main_of_child({parent})"
# The share of one explanation when there are several, so that a hang leaves time for the others.
_SHARE = 0.5
_LOOK_SECONDS = 0.1
# Verdicts with no place in a model's pass, or whose case would hang again.
_ASIDE = {
    Verdict.POLICY,
    Verdict.UNSUPPORTED,
    Verdict.VACUOUS,
    Verdict.COST,
    Verdict.LEAK,
    Verdict.HANG,
}


def with_explanations(
    outcome: Outcome,
    scenarios: Mapping[str, Scenario],
    *,
    seconds: float,
    jobs: int,
    options: Sequence[str] = (),
    most: int | None = None,
) -> Outcome:
    """Return the outcome of a run with explanations of its failures, as far as time allows.

    Results of other code versions than the installed ones stay unexplained: they may differ here.

    Args:
        outcome: the outcome of a run.
        scenarios: the scenarios by name.
        seconds: limit for all explanations; one of several gets at most half. 0: explain none.
        jobs: processes at a time.
        options: options of the run that ``conformance explain`` needs, too.
        most: how many failures to explain; ``None``: the lowest of each family.
    """
    cases = tuple(lowest(outcome, scenarios))[:most] if seconds > 0 else ()
    chosen = tuple(result for result in cases if result.case not in outcome.explanations)
    same = tuple(result for result in chosen if _played_by_this_code(result))
    if other := len(chosen) - len(same):
        failures = count(other, "failure")
        say(f"not explained: {failures} of other versions than are here", err=True)
    if not same:
        return outcome
    begin = time.monotonic()
    found = explained(same, seconds=seconds, jobs=jobs, options=options)
    took = duration(time.monotonic() - begin)
    left = [result for result in same if result.case not in found]
    more = f"; with more time: {_command(left[0])}" if left else ""
    say(f"explained {len(found)} of {len(same)} failures in {took}{more}", err=True)
    return dataclasses.replace(outcome, explanations={**found, **outcome.explanations})


def _command(result: CaseResult) -> str:
    return command_about("explain", result.case, options_of(result))


def _played_by_this_code(result: CaseResult) -> bool:
    for package in ("mlx", *(module.replace("_", "-") for module in MODULES)):
        there = {k: v for k, v in result.versions.items() if k in (package, f"{package} source")}
        if there and _names(there) != _names(versions_of(package)):
            return False
    return True


def _names(versions: Mapping[str, str]) -> list[str]:
    """Versions, and the commit of a checkout, whose path may differ between machines."""
    return sorted(version.rpartition("/")[2] for version in versions.values())


def lowest(outcome: Outcome, scenarios: Mapping[str, Scenario]) -> Iterator[CaseResult]:
    """The cases to explain: the lowest of each finding, then the lowest of each other family."""
    seen: set[tuple[str, str, str]] = set()
    every = [[r for r in one.cases if _has_place(r, scenarios)] for one in outcome.cascades]
    for cases in every:
        if cases:
            seen.add(_family(cases[0]))
            yield cases[0]
    for result in (result for cases in every for result in cases):
        if _family(result) not in seen:
            seen.add(_family(result))
            yield result


def _family(result: CaseResult) -> tuple[str, str, str]:
    return result.engine, result.dtype, result.family


def _has_place(result: CaseResult, scenarios: Mapping[str, Scenario]) -> bool:
    """Whether the case has an unexpected finding in a schedule that an engine runs."""
    finding = worst(result)
    if finding is None or not finding.schedule or finding.verdict in _ASIDE:
        return False
    scenario = scenarios.get(result.scenario)
    return not finding.verdict.good and scenario is not None and not scenario.oracle_only


def explained(
    cases: Iterable[CaseResult], *, seconds: float, jobs: int, options: Sequence[str] = ()
) -> dict[str, Explanation]:
    """Run ``conformance explain`` on each case; an explanation that fails affects no other.

    Args:
        cases: the most important case first.
        seconds, jobs, options: as in ``with_explanations``.
    """
    deadline = time.monotonic() + seconds
    waiting = list(enumerate(cases))[::-1]
    most = seconds * _SHARE if len(waiting) > 1 else seconds
    running: list[Child] = []
    limit = fair_limit(jobs)
    with tempfile.TemporaryDirectory() as folder:
        try:
            while (waiting or running) and time.monotonic() < deadline:
                while waiting and len(running) < jobs:
                    number, result = waiting.pop()
                    file = Path(folder) / f"{number}.json"
                    running.append(_start(result, file, options, most, limit))
                time.sleep(_LOOK_SECONDS)
                over = [child for child in running if child.over() or child.excess]
                for child in over:
                    child.end()
                running = [child for child in running if child not in over]
        finally:
            for child in running:
                child.end()
        return read_explanations(Path(folder))


def _start(
    result: CaseResult, file: Path, options: Sequence[str], seconds: float, most_bytes: int
) -> Child:
    finding = worst(result)
    assert finding is not None, "only cases with a new finding are chosen"
    arguments = ["explain", result.case, "--schedule", finding.schedule, "--json", str(file)]
    child = start_child([*arguments, *options])
    child.limit(seconds, most_bytes)
    return child


def start_child(arguments: Sequence[str]) -> Child:
    """The command in a process that prints nothing and ends with its parent."""
    command = [sys.executable, "-c", _CHILD.format(parent=os.getpid()), *arguments]
    return start(command)
