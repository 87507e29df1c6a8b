"""Goldens as snapshots of syrupy: where they are, when they match, what may be written.

``--snapshot-update`` goes through the same gate as ``conformance golden update``. It writes the
golden of a ``Proposal``, which only the gate makes; a golden that was merely checked, above all a
batched run, cannot be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from conformance.app.pytest_plugin.golden_items import folder_of, names_of
from conformance.tools.golden.checking import Checked
from conformance.tools.golden.format import to_text, write_whole
from conformance.tools.golden.paths import FOLDER, SUFFIX
from conformance.tools.golden.update import Proposal


class GoldenExtension(SingleFileSnapshotExtension):
    """One golden, one file; ``check`` or ``propose`` has determined whether it matches."""

    _write_mode = WriteMode.TEXT
    file_extension = SUFFIX.removeprefix(".")

    def __init__(self) -> None:
        self._matches = False

    def serialize(self, data: Any, **_: Any) -> str:
        """The text of a golden that passed the gate; for a check, a text that is not a golden.

        Raises:
            TypeError: the value is neither.
        """
        if isinstance(data, Checked):
            self._matches = data.good
            return "checked, not staged"
        if not isinstance(data, Proposal) or data.staged is None:
            raise TypeError(f"a golden is made from the oracle, not from a {type(data).__name__}")
        self._matches = not data.writes
        return to_text(data.staged.golden)

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:  # noqa: ARG002
        """Whether the golden still holds."""
        return self._matches

    # Where they are ------------------------------------------------------------------------------

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """The folder of the item's library."""
        library, _ = names_of(test_location.item)
        return str(folder_of(test_location.item.config) / library)

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: Any) -> str:  # noqa: ARG003
        """The family."""
        return names_of(test_location.item)[1]

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:  # noqa: ARG003
        """The item's own name; a file holds no other."""
        return str(test_location.item.name)

    @classmethod
    def matches_test_location(
        cls,
        *,
        test_location: PyTestLocation,
        snapshot_location: str,
    ) -> bool:
        """Whether the file belongs to that item."""
        return cls.get_location(test_location=test_location, index=0) == snapshot_location

    @classmethod
    def discovery_dirname(cls, *, test_location: PyTestLocation) -> str:  # noqa: ARG003
        """Called for every item of the run, whatever it tests; nothing is searched there."""
        return FOLDER

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """Nothing: only the registry knows orphans, and only files that are named are deleted."""
        return SnapshotCollections()

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, **_: Any
    ) -> None:
        """Write the one golden atomically.

        Raises:
            GoldenError: it is not a golden, or cannot be written.
        """
        (snapshot,) = snapshot_collection
        write_whole(Path(snapshot_collection.location), str(snapshot.data))
