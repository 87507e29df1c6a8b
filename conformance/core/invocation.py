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
    """

    started: str
    command: str

    @property
    def when(self) -> str:
        """The time for readers: ``2026-11-22 14:10 UTC``."""
        return f"{self.started[:16].replace('T', ' ')} UTC"


def this_invocation(arguments: Sequence[str] | None = None) -> Invocation:
    """The invocation of this process, now; ``arguments`` are the interpreter's ``sys.argv``."""
    script, *rest = sys.argv if arguments is None else arguments
    path = Path(script)
    if path.name == "__main__.py":
        started = ["python", "-m", path.parent.name]
    else:
        started = ["python", "-c", "..."] if script in ("", "-c") else [path.name]
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Invocation(now, shlex.join([*started, *rest]))
