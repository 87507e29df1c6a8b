"""Goldens as snapshots of syrupy: where they are, when they match, how a mismatch is reported.

``--snapshot-update`` goes through the same gate as ``conformance golden update``: what is written
is a ``Staged``, which only the gate makes; what was only observed, such as a batched run, cannot
be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from conformance.app.pytest_plugin.golden_items import folder_of, names_of
from conformance.checks.expectations import Expectations
from conformance.core.engine import Engine
from conformance.core.errors import GoldenError
from conformance.reference.subject import Subject
from conformance.tools.golden.changes import changes_between
from conformance.tools.golden.difference import Difference, in_short
from conformance.tools.golden.files import write_whole
from conformance.tools.golden.format import Golden, parse_golden, to_text
from conformance.tools.golden.layout import FOLDER, SUFFIX
from conformance.tools.golden.recipe import recipe_hash
from conformance.tools.golden.regression import differences
from conformance.tools.golden.staging import Staged


@dataclass(frozen=True)
class Observed:
    """What the library and its engines do now: can be compared with a golden, not become one."""

    subject: Subject
    engines: tuple[type[Engine], ...]
    expectations: Expectations | None

    def unlike(self, golden: Golden) -> Iterator[Difference | str]:
        """How it differs from the golden."""
        if golden.provenance.recipe != recipe_hash(self.subject.family):
            yield "stale: config, weights recipe or prompts are not those that it was made from"
            return
        yield from differences(self.subject, self.engines, golden, self.expectations)


class GoldenExtension(SingleFileSnapshotExtension):
    """One golden, one file; it matches as long as rounding explains the difference."""

    _write_mode = WriteMode.TEXT
    file_extension = SUFFIX.removeprefix(".")

    def __init__(self) -> None:
        self._value: Staged | Observed | None = None
        self._report: list[str] = []
        self.known: tuple[str, ...] = ()

    def serialize(self, data: Any, **_: Any) -> str:
        """The text of a golden that passed the gate; of an observation a text that is no golden.

        Raises:
            TypeError: the value is neither.
        """
        if not isinstance(data, Staged | Observed):
            raise TypeError(f"a golden is made from the oracle, not from a {type(data).__name__}")
        self._value = data
        return to_text(data.golden) if isinstance(data, Staged) else "observed, not staged"

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:  # noqa: ARG002
        """Whether the value still agrees with the golden.

        Raises:
            GoldenError: the file is damaged, and there is nothing staged to replace it.
        """
        value = self._value
        if isinstance(value, Staged):
            try:
                old = parse_golden(snapshot_data, path=value.golden.family)
            except GoldenError:
                return False
            changes = changes_between(old, value.golden)
            self._report = [str(changes.kind), *changes.causes]
            return changes.keep
        assert value is not None, "syrupy serializes a value before it compares it"
        family = value.subject.family.name
        path = f"golden/{value.subject.library.name}/{family}{SUFFIX}"
        found = list(value.unlike(parse_golden(snapshot_data, path=path)))
        of_runs = [one for one in found if isinstance(one, Difference)]
        self.known = tuple(sorted({name for one in of_runs for name in one.known}))
        unknown = [one for one in of_runs if not one.known]
        stale = [one for one in found if isinstance(one, str)]
        meaning = [in_short(unknown)] if unknown else []
        self._report = [*stale, *meaning, *(f"    {one}" for one in unknown)]
        return not stale and not unknown

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:  # noqa: ARG002
        """Which comparison failed; of each request the step, the token, margin and noise."""
        yield from self._report

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
        """Whether the file is that item's."""
        return cls.get_location(test_location=test_location, index=0) == snapshot_location

    @classmethod
    def discovery_dirname(cls, *, test_location: PyTestLocation) -> str:  # noqa: ARG003
        """Called for every item of the run, whatever it tests; nothing is looked for there."""
        return FOLDER

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """None: only the registry knows orphans, and nothing is deleted without a request."""
        return SnapshotCollections()

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, **_: Any
    ) -> None:
        """Write the one golden, whole or not at all.

        Raises:
            GoldenError: it is none, or cannot be written.
        """
        (snapshot,) = snapshot_collection
        write_whole(Path(snapshot_collection.location), str(snapshot.data))
