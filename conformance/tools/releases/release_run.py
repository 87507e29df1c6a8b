"""Runs the ladder, or the test of cache classes, in a release's environment; reads the results."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.core.errors import ConformanceError, ReleaseError
from conformance.core.names import means
from conformance.core.processes import Done
from conformance.core.unavailable import listed
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import read_run
from conformance.tools.releases.cache_outcomes import CacheOutcome, read_outcomes
from conformance.tools.releases.environments import Environment, prepare
from conformance.tools.releases.pins import Release

# Exit codes of commands with results: as expected, or not.
_RAN = (0, 1)
_SIGNALLED = 128  # plus the signal's number

Note = Callable[[int, int, str], None]
"""Called from time to time with the numbers of finished cases and of all, and the last case.

0 and empty if unknown.
"""


@dataclass(frozen=True)
class Choice:
    """Which cases to run, as the options of ``conformance run``; empty means its defaults.

    Attributes:
        timeout: seconds after which a release's run is ended; results until then count.
        caches: run the test of cache classes too.
        cases: run the ladder.
        tier: of the ladder; empty for the default tier.
        judged: known defects apply, as far as their functions are unchanged there.
    """

    engines: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    jobs: int | None = None
    timeout: float | None = None
    caches: bool = False
    cases: bool = True
    tier: str = ""
    judged: bool = False

    def arguments(self, release: Release) -> list[str]:
        """The options; all engines of the release's library except servers if none is named."""
        named = {
            "--engine": self.engines or (f"{release.engine}*",),
            "--family": self.families,
            "--scenario": self.scenarios,
            "--dtype": self.dtypes,
            "--seed": self.seeds,
            "--jobs": (str(self.jobs),) if self.jobs else (),
            "--tier": (self.tier,) if self.tier else (),
        }
        return [text for name, values in named.items() for v in values for text in (name, v)]

    def text(self, release: Release) -> str:
        """The cases in words: engines, families and scenarios, the first few of each."""
        named = {
            "": self.engines or (f"{release.engine}*",),
            "families ": self.families,
            "scenarios ": self.scenarios,
        }
        found = [f"{what}{listed(names)}" for what, names in named.items() if names]
        return ", ".join(found if self.cases else ["cache classes"])


@dataclass(frozen=True)
class Column:
    """The results of one release, and why any are missing.

    Attributes:
        results: of the cases.
        caches: of the cache classes.
        problem: why results are missing; empty if they are complete.
    """

    release: Release
    results: tuple[CaseResult, ...] = ()
    caches: tuple[CacheOutcome, ...] = ()
    problem: str = ""

    @property
    def empty(self) -> bool:
        """Whether the release could not be run at all."""
        return not (self.results or self.caches)


def run(
    release: Release,
    choice: Choice,
    *,
    cache: Path,
    json_file: Path,
    given: Mapping[str, str],
    note: Note = lambda *_: None,
) -> Column:
    """Install a release if necessary, and run the cases there.

    Expectations are not used, since they are about the current releases. The results also stay in
    ``json_file``, those of caches next to it. A release that cannot be installed, imported or run
    is a column with its problem; one that ends early has the results written until then.

    Args:
        cache: a folder for environments.
        given: what the user wants installed with it, by distribution.
    """
    results: tuple[CaseResult, ...] = ()
    caches: tuple[CacheOutcome, ...] = ()
    problems = []
    try:
        server = any(means(glob, f"{release.engine}_server") for glob in choice.engines)
        environment = prepare(release, given, cache, server=server)
        if choice.cases:
            results, problem = _cases(environment, release, choice, json_file, note)
            problems += [problem] if problem else []
        if choice.caches:
            caches, problem = _caches(environment, release, choice, caches_file(json_file))
            problems += [problem] if problem else []
    except ConformanceError as error:
        problems.append(str(error))
    return Column(release, results, caches, "; ".join(problems))


CACHES = ".caches.jsonl"
"""The end of the name of a file with the outcomes of a release's cache classes."""


def caches_file(json_file: Path) -> Path:
    """The path for the outcomes of caches, next to a release's results."""
    return json_file.with_suffix(CACHES)


def _cases(
    environment: Environment, release: Release, choice: Choice, file: Path, note: Note
) -> tuple[tuple[CaseResult, ...], str]:
    """The results of the ladder, and why any are missing."""
    partial = file.with_name(file.name + ".partial")
    for left in (file, partial):
        left.unlink(missing_ok=True)

    def look() -> bool:
        note(*_progress(partial))
        return True

    ended = environment.run(
        [
            *("-m", "conformance", "run", "--durations", "0"),
            *(() if choice.judged else ("--no-expectations",)),
            *("--json", str(file)),
            *choice.arguments(release),
        ],
        choice.timeout,
        look,
    )
    # The file exists once all cases have a result, even if time ran out just then.
    if file.is_file() and (ended.why or ended.code in _RAN):
        return read_run(file).results, ""
    found = read_run(partial) if partial.is_file() else None
    problem = problem_of(ended, choice.timeout)
    if found is None or not found.results:
        raise ReleaseError(f"cannot be run: {problem}")
    partial.replace(file)
    return found.results, f"ended after {len(found.results)} cases: {problem}"


def _caches(
    environment: Environment, release: Release, choice: Choice, file: Path
) -> tuple[tuple[CacheOutcome, ...], str]:
    """The outcomes of the release's own cache classes, and why any are missing."""
    file.unlink(missing_ok=True)
    own = ("--class", f"{release.engine}.*", "--every", "--json", str(file))
    ended = environment.run(["-m", "conformance", "audit", "caches", *own], choice.timeout)
    if not file.is_file():
        return (), f"its caches cannot be tested: {problem_of(ended, choice.timeout)}"
    return read_outcomes(file), ""


def _progress(partial: Path) -> tuple[int, int, str]:
    """The number of cases in a result file so far, the number planned, and the last case."""
    try:
        found = read_run(partial)
    except ConformanceError:  # the file does not exist yet, or already has its final name
        return 0, 0, ""
    last = found.results[-1].case if found.results else ""
    return len(found.results), found.header.planned if found.header else 0, last


def problem_of(ended: Done, timeout: float | None) -> str:
    """The command's error message, its last line of output, or its signal."""
    if ended.code is None:
        return ended.why
    if ended.why:
        return f"--timeout: its {timeout:g} seconds were over"
    # The command's parent process reports a signal as a shell does.
    number = -ended.code if ended.code < 0 else ended.code - _SIGNALLED
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        return f"it was ended by {name}; with --jobs 2 or more only the case that does it is lost"
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("conformance: ")]
    last = (own or lines or [f"exit code {ended.code} without output"])[-1]
    return last.removeprefix("conformance: ")
