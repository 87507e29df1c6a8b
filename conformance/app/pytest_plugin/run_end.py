"""How a run ended: the one place that decides whether its results are whole, and its exit code.

It handles every ending: all cases done, ``-x``, one or two signals, an internal error of a worker
or of this process, lost workers, a full disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec
import pytest

import conformance
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.run_header import RunHeader

STOPPED = "-x"

_ALL_DONE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_NONE = pytest.ExitCode.NO_TESTS_COLLECTED


@dataclass(frozen=True)
class RunEnd:
    """The planned cases of a run, and what became of them.

    Attributes:
        planned: the ids of all cases that must have a result.
        done: the ids of those that have one.
        first_failure: ``-x`` was given, and a verdict was unexpected.
        interrupted: somebody stopped the run from outside.
        unwritten: the result file could not be written.
        empty_shard: there are fewer families than shards, and none for this one.
        about: the rest of the header of its result file.
    """

    planned: Collection[str]
    done: Collection[str]
    first_failure: bool = False
    interrupted: bool = False
    unwritten: bool = False
    empty_shard: bool = False
    about: RunHeader = field(default_factory=lambda: RunHeader(0))

    @property
    def missing(self) -> int:
        """How many planned cases have no result."""
        return len(set(self.planned) - set(self.done))

    @property
    def stopped(self) -> bool:
        """Whether ``-x`` ended the run, so that the missing results will not arrive."""
        return self.first_failure and not self.interrupted and self.missing > 0

    @property
    def whole(self) -> bool:
        """Whether a result file may be replaced: all cases are there, or ``-x`` ended the run."""
        return self.stopped or not (self.missing or self.nothing)

    @property
    def nothing(self) -> bool:
        """Whether no case was planned, as after ``-k`` with a word that matches nothing."""
        return not self.planned and not self.empty_shard

    @property
    def header(self) -> RunHeader:
        """The first line of its result file."""
        return msgspec.structs.replace(
            self.about,
            planned=len(set(self.planned) | set(self.done)),
            stopped=STOPPED if self.stopped else "",
        )

    def exit_code(self, status: int) -> int:
        """The exit code of a run that pytest would end with ``status``.

        0 and 1 only if all results are complete and written; otherwise 2.
        """
        if status == _NONE and self.empty_shard:
            return int(pytest.ExitCode.OK)
        if self.nothing and status in (*_ALL_DONE, _NONE) and not self.unwritten:
            return status  # goldens may have been run
        if not self.whole or self.unwritten:
            return int(pytest.ExitCode.INTERRUPTED)
        if self.stopped:
            return int(pytest.ExitCode.TESTS_FAILED)
        return status if status in _ALL_DONE else int(pytest.ExitCode.INTERRUPTED)


# The contents of a result file's header except the count of its cases ----------------------------


def about(setup: Setup, started: str) -> RunHeader:
    """The header at the start of a run, with no case planned yet.

    Args:
        setup: of the run.
        started: when, in UTC.
    """
    given = setup.settings
    return RunHeader(
        0,
        devices=given.devices,
        tier=given.tier,
        shard=given.shard,
        run=_digest(setup),
        started=started,
    )


def _digest(setup: Setup) -> str:
    """A hash of the selection, the judging and the code; the same for all shards."""
    given = setup.settings
    real = given.checkpoint
    parts = (
        (given.engines, given.families, given.scenarios, given.dtypes, given.seeds),
        (given.tier, setup.selection.shard.count, given.use_expectations, given.mends),
        (given.plugins, [path.name for path in given.family_files]),
        (given.expectations.name if given.expectations else "", real.folder.name if real else ""),
        [sorted(setup.registry.versions_of(name).items()) for name in setup.engines],
        conformance.__version__,
    )
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()
