"""How and when a run was started; part of a result's line, like the versions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Invocation(msgspec.Struct, frozen=True, order=True):
    """One call of a command. Results joined from several runs have several.

    Attributes:
        started: start time in UTC: ``2026-11-22T14:10:28Z``.
        command: the command line, as a shell takes it.
        options: words of the options that a later command about one of its cases needs, too:
            ``--family-file FILE``, ``--url URL``.
    """

    started: str
    command: str
    options: tuple[str, ...] = ()

    @property
    def when(self) -> str:
        """The time for readers: ``2026-11-22 14:10 UTC``."""
        return f"{self.started[:16].replace('T', ' ')} UTC"


def this_invocation(
    arguments: Sequence[str] | None = None, *, options: Sequence[str] = ()
) -> Invocation:
    """The invocation of this process, now; ``arguments`` are the interpreter's ``sys.argv``."""
    script, *rest = sys.argv if arguments is None else arguments
    path = Path(script)
    if path.name == "__main__.py":
        started = ["python", "-m", path.parent.name]
    else:
        started = ["python", "-c", "..."] if script in ("", "-c") else [path.name]
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Invocation(now, shlex.join([*started, *rest]), tuple(options))


# Commands about a case of an invocation ----------------------------------------------------------

FLAGS = frozenset(("--no-expectations", "--no-mends", "--trust-remote-code", "--force", "--remote"))
"""Options of an invocation without a value."""

_OF_JUDGING = ("--expectations", "--no-expectations", "--no-mends")
_OF_CODE = ("--family-file", "--library-path", "-p")
TAKEN = {
    "explain": _OF_CODE,
    "repro": (*_OF_CODE, "--expectations", "--no-expectations"),
    "show defects": ("-p", "--expectations"),
}
"""The options of an invocation that a command takes; one that is not here takes all."""


def command_about(
    command: str, what: str, options: Sequence[str] = (), *more: str, needs: bool = True
) -> str:
    """The command line about a case, or about a known defect, of a run with these options.

    Args:
        command: ``show``, ``explain``, ``repro`` or ``show defects``.
        what: the id of the case or of the defect.
        options: those of the invocation. Options about judging are left out where the command does
            not take them.
        more: words that follow.
        needs: another option that the command does not take means that it cannot do the case (a
            checkpoint, a server): the result is empty.
    """
    taken = TAKEN.get(command)
    kept: list[str] = []
    words = iter(options)
    for word in words:
        value = () if word in FLAGS else (next(words),)
        if taken is None or word in taken:
            kept += (word, *value)
        elif needs and word not in _OF_JUDGING:
            return ""
    return shlex.join(["conformance", *command.split(), *kept, what, *more])
