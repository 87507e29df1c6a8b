"""The ``conformance`` command: commands in groups; a user error is printed as one sentence."""

from __future__ import annotations

import faulthandler
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import thread as pools
from pathlib import Path
from typing import Any

import click

import conformance
from conformance.app.cli import printing
from conformance.app.cli.lazy_group import LazyGroup
from conformance.app.cli.printing import say
from conformance.core import devices, library_paths, signals
from conformance.core.errors import ConformanceError
from conformance.core.first_signals import INTERRUPTED
from conformance.core.unavailable import lacking_import
from conformance.core.user_cache import user_cache
from conformance.core.watched_child import INCOMPLETE, End, end_with_parent, go_on_in_child

EXIT_USER_ERROR = 2
_AGAIN = "from conformance.app.cli import main; main()"
_STDERR = 2

_SECTIONS = {
    "Prove": {
        "run": "Run cases and judge each: the main command.",
        "smoke": "Run an engine for a few steps: does it work at all?",
        "explore": "Search for schedules that show a defect.",
    },
    "Understand": {
        "show": "Show what is installed, or one case in full.",
        "explain": "Find where a failing case first differs, and why.",
        "repro": "Write a failing case as a short script.",
    },
    "Compare": {
        "diff": "Compare the results of two runs.",
        "report": "Summarize results for CI, or write them as pages.",
        "releases": "Compare releases of a library.",
    },
    "Add": {
        "new": "Add a model family or an engine.",
    },
    "Maintain": {
        "golden": "Check, update and export goldens.",
        "known": "Sort the known defects by what a new release shows.",
        "audit": "Test the checks themselves, and measure runs.",
    },
}


class _Main(LazyGroup):
    """The command itself: prints an error that the user can fix as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print an error that the user can fix as one sentence."""
        try:
            with signals.interruptible():
                return super().invoke(ctx)
        except ConformanceError as error:
            say(f"conformance: {error}", err=True)
            ctx.exit(EXIT_USER_ERROR)
        except ImportError as error:
            say(f"conformance: {lacking_import(error)}", err=True)
            ctx.exit(EXIT_USER_ERROR)
        except (KeyboardInterrupt, click.Abort):
            _say_interrupted(ctx)
        except OSError as error:
            if not error.strerror:
                raise
            place = f"{error.filename}: " if error.filename else ""
            say(f"conformance: {place}{error.strerror}", err=True)
            ctx.exit(EXIT_USER_ERROR)
        except SystemExit as ended:  # not from click, which raises another exception
            say(f"conformance: code of a plugin or a model ended the command: {ended!r}", err=True)
            ctx.exit(INCOMPLETE)
        except RuntimeError as error:
            if not signals.came_of(error):
                raise
            _say_interrupted(ctx)


def _say_interrupted(ctx: click.Context) -> None:
    say("conformance: interrupted", err=True)
    ctx.exit(INTERRUPTED)


@click.group(
    cls=_Main,
    package=__package__,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(conformance.__version__, prog_name="conformance")
def group() -> None:
    """Check that batched decoding on MLX gives the same result as single-stream decoding.

    Every model family is built tiny, decoded as single streams and in batches arranged in every
    way a server can arrange them, and judged: exact, a floating-point tie, or wrong.

    \b
    conformance run --family 'qwen3*'        some families, every scenario
    conformance run --scenario staggered     every family, one scenario
    conformance show                         what is installed, and what to type next
    """  # noqa: D301


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``conformance`` command; the work is done in a child process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    anew = sys.orig_argv[1:] if arguments is None else ["-c", _AGAIN, *words]
    name = shlex.join(["conformance", *words])
    end = go_on_in_child([sys.executable, *anew], name, early=INTERRUPTED)
    # Child processes import nothing from the current folder, which may be a checkpoint.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # Hypothesis caches constants of source files; by default it does so in the current folder.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(user_cache() / "hypothesis"))
    _run(words, end)


def main_of_child(parent: int) -> None:
    """Entry point of a process that explains a case for another command."""
    end_with_parent(parent)
    _run(sys.argv[1:])


def _run(arguments: Sequence[str], end: End | None = None) -> None:
    printing.use_streams()
    faulthandler.enable(_STDERR)  # a crash shows where the process was
    try:
        _check_folder()
        _use_checkouts(arguments)
        _use_devices(arguments)
        group.main(args=arguments, prog_name="conformance")
    except SystemExit as ended:
        code = _code(ended.code)
        if problem := printing.output_problem():
            say(f"conformance: {problem}", err=True)
            code = EXIT_USER_ERROR
        if end is not None:
            end.note(code)
        _leave_threads(code)
        sys.exit(code)


def _code(code: object) -> int:
    return code if isinstance(code, int) else int(code is not None)


def _check_folder() -> None:
    """Refuse to work in a folder that was deleted: much would fail without one."""
    try:
        Path.cwd()
    except OSError:
        say("conformance: the working directory was deleted; change to another", err=True)
        sys.exit(EXIT_USER_ERROR)


def _use_checkouts(arguments: Sequence[str]) -> None:
    """Apply ``--library-path`` before the command's module imports a library."""
    try:
        library_paths.use(library_paths.in_words(arguments))
        library_paths.import_used()
    except ConformanceError as error:
        say(f"conformance: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)


def _use_devices(arguments: Sequence[str]) -> None:
    """Apply ``--devices`` before the command's module imports mlx."""
    text = devices.in_words(arguments) if arguments[:1] == ["run"] else ""
    if not text:
        devices.see_first()
        return
    try:
        devices.use(text)
    except ConformanceError as error:
        say(f"conformance: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)


def _leave_threads(code: int) -> None:
    """End the process at once if a model left threads that would keep it running."""
    left = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if any(thread not in pools._threads_queues for thread in left):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
