"""The contents of a result file's header except the count of its cases."""

from __future__ import annotations

import hashlib

import msgspec

import conformance
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.run_header import RunHeader


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
