"""Oracles of tiny families that the tests of one run share, instead of each making its own.

They are a store as every user has one: the key of a file holds all that its results depend on, and
the first stream that is found there is made anew and compared. For tests that change a library only
around the runs of an engine, or in a copy with another text: what else a test changes in a process
would be stored for the others. Tests about the store itself have one of their own.
"""

import os
from pathlib import Path

from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle_key import oracle_key

PLACE = "CONFORMANCE_TESTS_ORACLES"


def shared_store():
    """The store, for a session in this process."""
    return FamilyStore(Path(os.environ[PLACE]), oracle_key)


def share(cache):
    """Let commands whose ``XDG_CACHE_HOME`` is this folder use the store."""
    folder = Path(cache, "mlx-conformance")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "families").symlink_to(os.environ[PLACE])
