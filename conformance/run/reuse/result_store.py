"""Results kept from run to run: one file for each family on an engine, in the user's cache."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.store import write_cached
from conformance.run.reuse.dependencies import file_of
from conformance.run.reuse.digests import digest, environment_digest, file_digest, package_digest

# Environments whose results are kept; an upgrade of any package makes another one.
_ENVIRONMENTS = 6


class Kept(msgspec.Struct, frozen=True):
    """The file of a family on an engine.

    Attributes:
        family: the family's digest.
        modules: what its cases hang on, each with the digest of its file.
        results: by tier and case.
    """

    family: str
    modules: dict[str, str]
    results: dict[str, dict[str, CaseResult]]


@dataclass(frozen=True)
class _Place:
    """What is known of a family on an engine.

    Attributes:
        kept: its file.
        unchanged: whether all modules are as they were.
        modules: a hash of the modules as they are.
    """

    kept: Kept
    unchanged: bool
    modules: str


@dataclass(frozen=True)
class ResultStore:
    """The results kept in a folder, of this environment.

    What a family hangs on is read once, as a run asks for thousands of cases.
    """

    folder: Path

    @functools.cached_property
    def here(self) -> Path:
        """The folder of what was run with the packages and on the machine of this process."""
        return self.folder / environment_digest()

    def known(self, case: CaseId, family: str, tier: str) -> CaseResult | None:
        """The case's result, if nothing that it hangs on has changed.

        Args:
            case: its id.
            family: the family's digest.
            tier: the name of the tier that it was played in.
        """
        place = self._place(case.engine, case.family)
        if place is None or place.kept.family != family or not place.unchanged:
            return None
        return place.kept.results.get(tier, {}).get(str(case))

    def key(self, case: CaseId, family: str, tier: str) -> str:
        """A hash of all that the case hangs on now; empty if its modules are not known.

        Args:
            case: its id.
            family: the family's digest.
            tier: in which it is played.
        """
        place = self._place(case.engine, case.family)
        if place is None:
            return ""
        parts = (str(case), tier, environment_digest(), family, place.modules)
        return digest(part.encode() for part in parts)

    def hangs_on(self, case: CaseId) -> frozenset[str] | None:
        """The names of the modules that the case hung on; ``None`` if that is not known."""
        place = self._place(case.engine, case.family)
        return None if place is None else frozenset(place.kept.modules)

    def add(
        self,
        engine: str,
        family: str,
        *,
        family_digest: str,
        modules: Mapping[str, str],
        results: Mapping[str, Iterable[CaseResult]],
    ) -> None:
        """Keep results of a family on an engine, beside those that still hold.

        Args:
            engine: its name.
            family: its name.
            family_digest: of its file.
            modules: what the cases hung on, with digests.
            results: by tier.
        """
        place = self._place(engine, family)
        old = None if place is None else place.kept
        if old is not None and old.family == family_digest and _agree(old.modules, modules):
            names, merged = old.modules | dict(modules), dict(old.results)
        else:
            names, merged = dict(modules), {}
        for tier, found in results.items():
            merged[tier] = merged.get(tier, {}) | {result.case: result for result in found}
        data = msgspec.json.encode(Kept(family_digest, names, merged))
        with contextlib.suppress(OSError):  # a run works without it
            write_cached(self._path(engine, family), data)
            _drop_old(self.folder)
        self.__dict__.get("_read", {}).pop((engine, family), None)

    def _place(self, engine: str, family: str) -> _Place | None:
        read: dict[tuple[str, str], _Place | None] = self.__dict__.setdefault("_read", {})
        if (engine, family) not in read:
            kept = _read(self._path(engine, family))
            read[engine, family] = None if kept is None else _looked_at(kept)
        return read[engine, family]

    def _path(self, engine: str, family: str) -> Path:
        return self.here / engine / f"{family}.json"


def _read(path: Path) -> Kept | None:
    """What a file has; nothing if it is of another version, or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def _looked_at(kept: Kept) -> _Place:
    now = {name: module_digest(name) for name in sorted(kept.modules)}
    modules = digest(f"{name} {found}".encode() for name, found in now.items())
    return _Place(kept, now == kept.modules, modules)


def _agree(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether what is known of both is equal, and the rest of the old still holds."""
    return all(new.get(name, module_digest(name)) == known for name, known in old.items())


@functools.cache
def module_digest(name: str) -> str:
    """The hash of the file that an import of this name would read; of a path, of that file.

    Found once in a process, as files are read once.

    A module of the user's own is named by its path; ``all_of`` stands for a whole package.
    """
    if name.endswith(".*"):
        return package_digest(name.removesuffix(".*"))
    path = Path(name) if name.endswith(".py") else file_of(name)
    return "gone" if path is None else file_digest(path)


def _drop_old(folder: Path) -> None:
    """Remove the results of environments that were used the longest ago."""
    there = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in there[_ENVIRONMENTS:]:
        shutil.rmtree(path, ignore_errors=True)
