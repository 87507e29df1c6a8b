"""Runs the command line and pytest as a user does, in processes of their own, with toy families."""

import json
import os
import signal
from pathlib import Path

import pytest
from forked import run_python

TOY = Path(__file__).parents[1] / "toy"
COMMAND = ("-c", "from conformance.app.cli import main; main()")
# Nothing of these plugins is needed, and each process would spend a second on them.
LEAN = ("-p", "no:hypothesispytest", "-p", "no:anyio")


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """A shell's background job ignores Ctrl-C, and so does all that it starts; tests send it."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path_factory):
    """No test uses what another one or the user has stored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


class Finished:
    """A process that is over: exit code, what it wrote, and the folder it ran in."""

    def __init__(self, process, folder):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr
        self.folder = folder

    def __repr__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    def results(self, name="r.jsonl"):
        """The lines of a result file."""
        found = [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        return [result for result in found if result.get("record") != "run"]

    def header(self, name="r.jsonl"):
        """The first line of a result file, which says what was planned."""
        return json.loads((self.folder / name).read_text().splitlines()[0])

    def verdicts(self, name="r.jsonl"):
        """Family/scenario of each line, with its verdict."""
        return {f"{r['family']}/{r['scenario']}": r["verdict"] for r in self.results(name)}


@pytest.fixture
def environment(tmp_path_factory):
    """Variables of the processes to start; the toy plugin is the only one that they see."""
    return _environment(tmp_path_factory)


@pytest.fixture(scope="session")
def in_folder(tmp_path_factory):
    """The ``conformance`` command in a folder, for what several tests look at."""

    def of(folder):
        def run(*arguments, **variables):
            given = {**_environment(tmp_path_factory), **variables}
            words = (*COMMAND, *arguments)
            return Finished(run_python(words, cwd=folder, env=given, timeout=600), folder)

        return run

    return of


def _environment(tmp_path_factory):
    found = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    for name in ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE"):
        found.pop(name, None)
    cache = tmp_path_factory.mktemp("cache")
    return {**found, "PYTHONPATH": str(TOY), "COLUMNS": "100", "XDG_CACHE_HOME": str(cache)}


@pytest.fixture
def start(environment, tmp_path):
    """Start a process and wait for its end."""

    def call(*arguments, **variables):
        given = {**environment, **variables}
        process = run_python(arguments, cwd=tmp_path, env=given, timeout=600)
        return Finished(process, tmp_path)

    return call


@pytest.fixture
def conformance(start):
    """The ``conformance`` command."""

    def run(*arguments, **variables):
        return start(*COMMAND, *arguments, **variables)

    return run


@pytest.fixture
def toy_run(conformance):
    """``conformance run`` on toy families; in one process, without explanations by default."""

    def run(*arguments, **variables):
        jobs = [] if "--jobs" in arguments else ["--jobs", "1"]
        given = {"--explain-seconds", "--report"} & set(arguments)
        alone = () if given else ("--explain-seconds", "0")
        return conformance("run", "--engine", "toy", *jobs, *alone, *arguments, **variables)

    return run


@pytest.fixture
def suite(start):
    """``pytest --pyargs conformance.suite`` on toy families."""

    def run(*arguments, **variables):
        return start(
            *("-m", "pytest", "--pyargs", "conformance.suite", "-p", "no:cacheprovider"),
            *("--conformance-engine", "toy"),
            *LEAN,
            *arguments,
            **variables,
        )

    return run
