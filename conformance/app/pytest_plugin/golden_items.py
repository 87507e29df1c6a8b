"""Selects the goldens for which a run of the suite has items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from conformance.app.pytest_plugin.setup import Setup, find_setup
from conformance.core.errors import ConformanceError
from conformance.run.registry import select
from conformance.tools.golden.checking import Checked
from conformance.tools.golden.format import FOLDER, SUFFIX, load_without, to_text, write_whole
from conformance.tools.golden.recipe import DTYPE, SEED
from conformance.tools.golden.staging import Proposal

PARAMETER = "golden_names"
OF_EACH, OF_FOLDER = "golden", "folder"
"""The functions of the suite's module, whose names pytest would not collect by itself."""


def given_folder(config: pytest.Config) -> Path | None:
    """The folder of goldens as set, else ``golden/`` where pytest was started, if it exists."""
    here = config.invocation_params.dir
    text = config.getoption("conformance_golden") or config.getini("conformance_golden")
    if text:
        return (here / Path(text).expanduser()).absolute()
    return here / FOLDER if (here / FOLDER).is_dir() else None


def folder_of(config: pytest.Config) -> Path:
    """The folder of goldens of a run that has items for them."""
    folder = given_folder(config)
    assert folder is not None, "without a folder no golden is collected"
    return folder


def names_of(item: Any) -> tuple[str, str]:
    """Library and family of a golden's item."""
    names: tuple[str, str] = item.callspec.params[PARAMETER]
    return names


def selected(config: pytest.Config) -> bool:
    """Whether the run has items for goldens: there is a folder, and syrupy is loaded."""
    return given_folder(config) is not None and config.pluginmanager.hasplugin("syrupy")


def wanted(config: pytest.Config) -> list[tuple[str, str]]:
    """Library and family of each selected golden; empty if scenarios or dtypes are selected.

    Raises:
        ConformanceError: a glob matches nothing, or the list of families without is damaged.
    """
    setup = find_setup(config)
    selection = setup.selection
    if selection.scenarios or DTYPE not in selection.dtypes or SEED not in selection.seeds:
        return []
    without = load_without(folder_of(config))
    of_libraries = [names for names in setup.registry.families if names[0] in setup.libraries]
    known = sorted({family for _, family in of_libraries})
    chosen = set(select(known, selection.families, what="family"))
    held = [names for names in of_libraries if names[1] in chosen and names not in without]
    return list(selection.shard.of(held, "/".join, setup.seconds))


class GoldenModule(pytest.Module):
    """The suite's module of goldens: one item for each family, and for a whole run the folder."""

    def funcnamefilter(self, name: str) -> bool:
        """Whether a function is an item."""
        return name in (OF_EACH, OF_FOLDER)

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """The items, each in the group of its family's cases."""
        try:
            setup = find_setup(self.config)
            if not wanted(self.config):
                return
            for item in super().collect():
                if self._fits(item, setup):
                    yield item
        except ConformanceError as error:
            raise self.CollectError(str(error)) from error

    def _fits(self, item: pytest.Item | pytest.Collector, setup: Setup) -> bool:
        if getattr(item, "originalname", "") == OF_FOLDER:
            return setup.selection.leads
        manager = self.config.pluginmanager
        if manager.hasplugin("timeout") and not self.config.getoption("timeout", None):
            item.add_marker(pytest.mark.timeout(setup.settings.timeout))
        item.add_marker(pytest.mark.xdist_group("/".join(names_of(item))))
        return True


# Goldens as snapshots of syrupy: where they are, when they match, what may be written ------------


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
