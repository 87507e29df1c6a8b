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
class ResultStore:
    """The results kept in a folder, of this environment."""

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
        kept = self._kept(case.engine, case.family)
        if kept is None or kept.family != family or not _unchanged(kept.modules):
            return None
        return kept.results.get(tier, {}).get(str(case))

    def key(self, case: CaseId, family: str, tier: str) -> str:
        """A hash of all that the case hangs on now; empty if its modules are not known.

        Args:
            case: its id.
            family: the family's digest.
            tier: in which it is played.
        """
        kept = self._kept(case.engine, case.family)
        if kept is None:
            return ""
        modules = (f"{name} {module_digest(name)}" for name in sorted(kept.modules))
        parts = (str(case), tier, environment_digest(), family, *modules)
        return digest(part.encode() for part in parts)

    def hangs_on(self, case: CaseId) -> frozenset[str] | None:
        """The names of the modules that the case hung on; ``None`` if that is not known."""
        kept = self._kept(case.engine, case.family)
        return None if kept is None else frozenset(kept.modules)

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
        old = self._kept(engine, family)
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

    def _kept(self, engine: str, family: str) -> Kept | None:
        read: dict[tuple[str, str], Kept | None] = self.__dict__.setdefault("_read", {})
        if (engine, family) not in read:
            read[engine, family] = _read(self._path(engine, family))
        return read[engine, family]

    def _path(self, engine: str, family: str) -> Path:
        return self.here / engine / f"{family}.json"


def _read(path: Path) -> Kept | None:
    """What a file has; nothing if it is of another version, or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):
        return None


def _unchanged(modules: Mapping[str, str]) -> bool:
    return all(module_digest(name) == known for name, known in modules.items())


def _agree(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether what is known of both is equal, and the rest of the old still holds."""
    return all(new.get(name, module_digest(name)) == known for name, known in old.items())


def module_digest(name: str) -> str:
    """The hash of the file that an import of this name would read; of a path, of that file.

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
