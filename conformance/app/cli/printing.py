"""What commands print: the one edge where text leaves for a terminal, a pipe or a CI system.

All commands print by ``say`` or by a console of ``consoles``, which write out what is invisible
(``core.plain_text``): names come from files and models. The streams below them bear a reader that
went away, as ``head`` does, and a disk that is full: the work goes on, and results are kept.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TextIO

import click

from conformance.core.plain_text import plain


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text, which may be of several lines."""
    click.echo(plain(text), err=err, nl=nl)


def say_command(text: str) -> None:
    """Print a line that is meant for the runner of a CI system; it escapes what it quotes."""
    click.echo(text)


def use_streams() -> None:
    """Let this process print by streams that bear what may happen to them."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # closed: the next file that is opened would take its place
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
    """Why not all could be printed, if it is no reader that went away."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    problem = sys.stdout.problem if isinstance(sys.stdout, _Outlet) else None
    return f"standard output: {problem.strerror}" if problem else None


class _Outlet(TextIOWrapper):
    """A standard stream; once it can't be written, it takes what comes and forgets it.

    Attributes:
        problem: why not, unless its reader went away.
    """

    problem: OSError | None = None

    @classmethod
    def of(cls, stream: TextIOWrapper) -> _Outlet:
        """In place of ``stream``; a terminal may not have every letter."""
        encoding, lines = stream.encoding, stream.line_buffering
        stream.flush()
        return cls(stream.detach(), encoding, errors="backslashreplace", line_buffering=lines)

    def write(self, text: str, /) -> int:
        """Write, or forget."""
        try:
            return super().write(text)
        except OSError as error:
            self._forget(error)
            return len(text)

    def flush(self) -> None:
        """Write what is left, or forget it."""
        try:
            super().flush()
        except OSError as error:
            self._forget(error)

    def _forget(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.problem = error
        _open_nothing(self.fileno())


def _open_nothing(number: int) -> None:
    """Let a file descriptor lead nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != number:
        os.dup2(nothing, number)
        os.close(nothing)
