"""Proposes an update of one family's golden, which a maintainer accepts or rejects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.checks.expectations import Expectations
from conformance.core.errors import ConformanceError, Unsupported
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.phases import Phases
from conformance.core.unavailable import error_text
from conformance.reference.subject import Subject
from conformance.tools.golden.changes import Changes, all_new, changes_between
from conformance.tools.golden.format import Golden, load_golden, to_text, write_whole
from conformance.tools.golden.paths import golden_path
from conformance.tools.golden.recipe import DTYPE, SEED
from conformance.tools.golden.staging import Staged, stage, with_verified


@dataclass(frozen=True)
class Proposal:
    """The proposed update of one file.

    Attributes:
        staged: the new golden; ``None`` if the gate refused it, for the reason in ``refused``.
        changes: its differences from the old golden.
        damaged: why the old file could not be read; it is then replaced.
    """

    library: str
    family: str
    path: Path
    staged: Staged | None = None
    changes: Changes | None = None
    refused: str = ""
    unsupported: bool = False
    damaged: str = ""

    @property
    def label(self) -> str:
        """The family's name in reports."""
        return f"{self.library}/{self.family}"

    def lines(self) -> list[str]:
        """The changes in the new golden, and their causes."""
        return self.changes.lines(self.label) if self.changes else []

    @property
    def writes(self) -> bool:
        """Whether accepting the proposal writes the file."""
        return self.staged is not None and not (self.changes and self.changes.keep)


def load_subject(library: Library, family: Family) -> Subject:
    """Load the family's model with the settings of goldens.

    Raises:
        ModelError: the library cannot build or load it.
    """
    return Subject.load(library, family, dtype=DTYPE, seed=SEED, phases=Phases())


def propose(
    pair: tuple[Library, Family], *, root: Path, expectations: Expectations | None
) -> Proposal:
    """Stage the family's golden and compare it with the existing file; writes nothing."""
    library, family = pair
    path = golden_path(root, library.name, family.name)
    try:
        staged = stage(load_subject(library, family), expectations)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is why there is none
        text = str(error) if isinstance(error, ConformanceError) else error_text(error)
        unsupported = isinstance(error, Unsupported)
        return Proposal(library.name, family.name, path, refused=text, unsupported=unsupported)
    old, damaged = _old(path)
    if old is None:
        changes = all_new(staged.golden)
    else:
        staged = with_verified(staged, old)
        changes = changes_between(old, staged.golden)
    return Proposal(library.name, family.name, path, staged, changes, damaged=damaged)


def accept(proposals: Iterable[Proposal]) -> tuple[Path, ...]:
    """Write the files that change, each atomically; the others are not touched.

    Raises:
        GoldenError: a file cannot be written; files before it are updated, those after it are not.
    """
    written = []
    for proposal in proposals:
        if proposal.writes and proposal.staged is not None:
            write_whole(proposal.path, to_text(proposal.staged.golden))
            written.append(proposal.path)
    return tuple(written)


def _old(path: Path) -> tuple[Golden | None, str]:
    if not path.exists():
        return None, ""
    try:
        return load_golden(path), ""
    except ConformanceError as error:
        return None, str(error)
