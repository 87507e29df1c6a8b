"""Runs the ladder in a release's environment: a subprocess that writes results."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.core.errors import ConformanceError, ReleaseError
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import read_results
from conformance.tools.releases.environments import prepare
from conformance.tools.releases.pins import Release, pins_of

# Exit codes of `conformance run` with results: all as expected, or not.
_RAN = (0, 1)


@dataclass(frozen=True)
class Choice:
    """Which cases to run, as the options of ``conformance run``; empty means its defaults."""

    engines: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    jobs: int | None = None

    def arguments(self, release: Release) -> list[str]:
        """The options, for the engine of the release if none is named."""
        named = {
            "--engine": self.engines or (release.engine,),
            "--family": self.families,
            "--scenario": self.scenarios,
            "--dtype": self.dtypes,
            "--seed": self.seeds,
            "--jobs": (str(self.jobs),) if self.jobs else (),
        }
        return [text for name, values in named.items() for v in values for text in (name, v)]


@dataclass(frozen=True)
class Column:
    """The results of one release, or why there are none."""

    release: Release
    results: tuple[CaseResult, ...] = ()
    problem: str = ""


def run(
    release: Release, choice: Choice, *, cache: Path, json_file: Path, overrides: Mapping[str, str]
) -> Column:
    """Install a release if need be, and run the cases there.

    Expectations are not used: they are about the current releases. The results also stay in
    ``json_file``. A release that cannot be installed, imported or run is a column with its problem.
    """
    try:
        environment = prepare(release, pins_of(release, overrides), cache)
        json_file.unlink(missing_ok=True)
        done = environment.call(
            [
                *("-m", "conformance", "run", "--no-expectations", "--durations", "0"),
                *("--json", str(json_file)),
                *choice.arguments(release),
            ]
        )
        if done.returncode not in _RAN or not json_file.is_file():
            raise ReleaseError(f"cannot be run: {_problem_of(done)}")
        return Column(release, read_results(json_file))
    except ConformanceError as error:
        return Column(release, problem=str(error))


def _problem_of(done: subprocess.CompletedProcess[str]) -> str:
    """The command's error message, else its last line of output, or its signal."""
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"it was ended by {name}; with --jobs 2 or more only the case that does it is lost"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("conformance: ")]
    last = (own or lines or [f"exit code {done.returncode} without output"])[-1]
    return last.removeprefix("conformance: ")
