"""Known defects of cache classes, and the findings that each explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from conformance.checks.expectations import loading as expectations
from conformance.checks.expectations.entry_tables import FindingEntry, read_entries
from conformance.core.errors import ExpectationError
from conformance.power.caches.discovery import Found
from conformance.power.caches.finding import WHATS, FindingError
from conformance.power.caches.sequences import replay

# In a subfolder of expectations: in the folder itself it would be read as case expectations.
OWN = expectations.OWN / "caches" / "known.toml"


class CacheDefect(
    FindingEntry, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"cls": "class"}
):
    """One known defect of cache classes.

    Attributes:
        cls: globs of ``library.Class``.
        verb: globs of the verbs that show the defect.
        what: the part that is wrong: contents, mask, offset and so on.
        facts: all facts that must hold for the cache or the sequence.
        play: a sequence of verbs that shows the defect, in the form of ``--json``.
    """

    cls: tuple[str, ...]
    verb: tuple[str, ...] = ("*",)
    what: tuple[str, ...]
    facts: tuple[str, ...] = ()
    play: str

    def explains(self, finding: FindingError) -> bool:
        """Whether the finding is this defect."""
        return (
            any(fnmatchcase(finding.name, pattern) for pattern in self.cls)
            and any(fnmatchcase(finding.verb, pattern) for pattern in self.verb)
            and finding.problem.what in self.what
            and re.search(self.says, finding.problem.text) is not None
            and set(self.facts) <= finding.facts
        )

    @property
    def played(self) -> str:
        """The class of the entry's own sequence."""
        return self.play.split(" ", 1)[0]


def load_cache_defects(path: Path = OWN) -> tuple[CacheDefect, ...]:
    """The entries for the installed releases.

    Raises:
        ExpectationError: the file is not valid; the message names the entry.
    """
    found = read_entries(path, CacheDefect)
    for entry in found:
        if wrong := set(entry.what) - WHATS:
            raise ExpectationError(f"{path}: defect {entry.id!r}: 'what' knows no {sorted(wrong)}")
    return tuple(entry for entry in found if entry.active())


def explain(defects: tuple[CacheDefect, ...], finding: FindingError) -> str | None:
    """The id of the first entry that explains the finding."""
    return next((entry.id for entry in defects if entry.explains(finding)), None)


def shows(entry: CacheDefect, classes: Sequence[Found], defects: tuple[CacheDefect, ...]) -> bool:
    """Whether the entry's own sequence still shows the defect."""
    ids: list[str | None] = []

    def judge(finding: FindingError) -> bool:
        ids.append(explain(defects, finding))
        return ids[-1] is not None

    try:
        replay(entry.play, classes, judge)
    except FindingError:
        return False
    return entry.id in ids
