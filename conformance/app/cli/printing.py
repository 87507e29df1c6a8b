"""All printing of commands: the one place where text goes to a terminal, a pipe or a CI system.

Commands print with ``say`` or with a console of ``consoles``, which escape invisible characters
(``core.plain_text``), since names come from files and models. The streams survive a reader that
exits, such as ``head``, and a full disk: the work continues, and results are kept.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TextIO

import click

from conformance.core.plain_text import plain


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text of one or several lines."""
    click.echo(plain(text), err=err, nl=nl)


def say_command(text: str) -> None:
    """Print a command line for the runner of a CI system, which escapes what it quotes."""
    click.echo(text)


def use_streams() -> None:
    """Replace stdout and stderr by streams that survive write errors."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # closed: the next file opened would get its number
            _open_nothing(number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            made: TextIO = os.fdopen(number, "w", encoding="utf-8", closefd=False)
        elif isinstance(stream, TextIOWrapper) and not isinstance(stream, _Outlet):
            made = _Outlet.of(stream)
        else:
            continue
        for both in (name, f"__{name}__"):
            setattr(sys, both, made)


def output_problem() -> str | None:
    """Why output was lost; ``None`` if it was not or only the reader exited."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    problem = sys.stdout.problem if isinstance(sys.stdout, _Outlet) else None
    return f"standard output: {problem.strerror}" if problem else None


class _Outlet(TextIOWrapper):
    """A standard stream that discards text once it can't be written.

    Attributes:
        problem: why it can't be written; ``None`` if its reader exited.
    """

    problem: OSError | None = None

    @classmethod
    def of(cls, stream: TextIOWrapper) -> _Outlet:
        """Wrap ``stream``; characters that a terminal lacks are escaped."""
        encoding, lines = stream.encoding, stream.line_buffering
        stream.flush()
        return cls(stream.detach(), encoding, errors="backslashreplace", line_buffering=lines)

    def write(self, text: str, /) -> int:
        """Write the text, or discard it."""
        try:
            return super().write(text)
        except OSError as error:
            self._forget(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or discard the rest."""
        try:
            super().flush()
        except OSError as error:
            self._forget(error)

    def _forget(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.problem = error
        _open_nothing(self.fileno())


def _open_nothing(number: int) -> None:
    """Redirect a file descriptor to the null device."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != number:
        os.dup2(nothing, number)
        os.close(nothing)
