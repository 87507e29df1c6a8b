"""Results kept between runs: one file for each family on an engine, in the user's cache.

An entry is valid while the environment (``reference/surroundings.py``) and each file that the
family's cases were seen to use are unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.core.content_keys import GONE, digest, file_digest
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.installed_files import (
    Digests,
    package_folder,
    signature,
)
from conformance.reference.sealed import SealedFolder
from conformance.reference.surroundings import Environment
from conformance.run.reuse.dependency_recorder import Seen
from conformance.run.reuse.import_graph import file_of

# Number of environments whose results are kept; upgrading any package makes a new environment.
_ENVIRONMENTS = 6


class Kept(msgspec.Struct, frozen=True):
    """The file of a family on an engine.

    Attributes:
        family: the family's digest.
        modules: the modules that its cases depend on, each with the digest of its file.
        results: the results by tier and case.
    """

    family: str
    modules: dict[str, str]
    results: dict[str, dict[str, CaseResult]]


@dataclass(frozen=True)
class _Place:
    """The stored state of a family on an engine.

    Attributes:
        kept: its file.
        unchanged: whether all modules are unchanged.
        modules: a hash of the current modules.
    """

    kept: Kept
    unchanged: bool
    modules: str


class ResultStore:
    """The stored results for this environment in a folder.

    A family's dependencies are read once, since a run looks up thousands of cases.

    Args:
        folder: a folder in the user's cache.
        environment: the environment before a library was imported.
        plugins: modules that the user names, which may change anything.
    """

    def __init__(
        self, folder: Path, environment: Environment, plugins: Collection[str] = ()
    ) -> None:
        self._sealed = SealedFolder(folder)
        self._environment = environment
        self._whole = environment.whole and digest(
            part.encode() for part in (environment.whole, *map(_plugin, plugins))
        )
        self._places: dict[tuple[str, str], _Place | None] = {}
        self._digests: dict[str, str] = {}

    @property
    def unused(self) -> str:
        """A sentence if results are neither kept nor reused here; else empty."""
        if not self._whole:
            return "the GPU cannot be named (nvidia-smi), so no earlier result is used or kept"
        return self._sealed.distrusted

    @functools.cached_property
    def here(self) -> Path:
        """The folder for the packages and the machine of this process."""
        return self._sealed.folder / self._whole

    def known(self, case: CaseId, family: str, tier: str) -> CaseResult | None:
        """The case's stored result, if nothing that it depends on has changed.

        Args:
            case: its id.
            family: the family's digest.
            tier: name of the tier in which it was run.
        """
        place = self._place(case.engine, case.family)
        if place is None or place.kept.family != family or not place.unchanged:
            return None
        return place.kept.results.get(tier, {}).get(str(case))

    def key(self, case: CaseId, family: str, tier: str) -> str:
        """A hash of everything the case depends on now; empty if its modules are unknown.

        Args:
            case: its id.
            family: the family's digest.
            tier: name of the tier in which it is run.
        """
        place = self._place(case.engine, case.family)
        if place is None:
            return ""
        parts = (str(case), tier, self._whole, family, place.modules)
        return digest(part.encode() for part in parts)

    def hangs_on(self, case: CaseId) -> frozenset[str] | None:
        """The names of the modules that the case depends on; ``None`` if unknown."""
        place = self._place(case.engine, case.family)
        return None if place is None else frozenset(place.kept.modules)

    def add(
        self,
        engine: str,
        family: str,
        *,
        family_digest: str,
        modules: Mapping[str, Seen],
        results: Mapping[str, Iterable[CaseResult]],
    ) -> None:
        """Store results of a family on an engine, in addition to those that are still valid.

        A file that changed since the run began is stored as edited, which never equals anything.

        Args:
            engine: the engine's name.
            family: the family's name.
            family_digest: digest of the family's file.
            modules: the modules that the cases depended on.
            results: the results by tier.
        """
        if self.unused:
            return
        found = {name: self._after_run(name, seen) for name, seen in modules.items()}
        Digests.here().save()
        place = self._place(engine, family)
        old = None if place is None else place.kept
        if old is not None and old.family == family_digest and self._agree(old.modules, found):
            names, merged = old.modules | found, dict(old.results)
        else:
            names, merged = found, {}
        for tier, played in results.items():
            merged[tier] = merged.get(tier, {}) | {result.case: result for result in played}
        data = msgspec.json.encode(Kept(family_digest, names, merged))
        with contextlib.suppress(OSError):  # a run works without it
            self._sealed.write(self._path(engine, family), data)
            self._sealed.drop_old(_ENVIRONMENTS)
        self._places.pop((engine, family), None)

    def _place(self, engine: str, family: str) -> _Place | None:
        if self.unused:
            return None
        if (engine, family) not in self._places:
            kept = self._read(self._path(engine, family))
            self._places[engine, family] = None if kept is None else self._looked_at(kept)
        return self._places[engine, family]

    def _path(self, engine: str, family: str) -> Path:
        return self.here / engine / f"{family}.json"

    def _read(self, path: Path) -> Kept | None:
        data = self._sealed.read(path)
        try:
            return None if data is None else msgspec.json.decode(data, type=Kept)
        except msgspec.MsgspecError:  # from another version
            return None

    def _looked_at(self, kept: Kept) -> _Place:
        now = {name: self._digest(name) for name in sorted(kept.modules)}
        Digests.here().save()
        modules = digest(f"{name} {found}".encode() for name, found in now.items())
        return _Place(kept, now == kept.modules, modules)

    def _agree(self, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
        """Whether all that both know is equal, and the rest of the old file is still valid."""
        return all(new.get(name, self._digest(name)) == known for name, known in old.items())

    def _digest(self, name: str) -> str:
        """The hash of the file that an import of this name would read; for a path, of that file.

        ``all_of`` stands for a whole package.
        """
        if name not in self._digests:
            self._digests[name] = self._read_digest(name)
        return self._digests[name]

    def _read_digest(self, name: str) -> str:
        if name.endswith(".*"):
            return self._environment.modules(name.removesuffix(".*"))
        path = _path_of(name)
        return GONE if path is None else _content(path)

    def _after_run(self, name: str, seen: Seen) -> str:
        """The hash of the code that was run; ``edited`` if the code is uncertain."""
        if name.endswith(".*"):
            package = name.removesuffix(".*")
            same = self._environment.unchanged_modules(package)
            return self._environment.modules(package) if same else EDITED
        path = _path_of(name)
        if seen == "absent":
            return GONE if path is None or not path.exists() else EDITED
        before = None if isinstance(seen, str) else seen
        same = path is not None and self._environment.unchanged(path, before)
        return _content(path) if same and path is not None else EDITED


EDITED = "edited during the run"
"""Replaces the digest of a file that changed: the process may have run either version."""


def _content(path: Path) -> str:
    """The hash of a file, which is read once: each family asks for CUDA's gigabytes."""
    sign = signature(path)
    return GONE if sign is None else Digests.here().of(str(path), sign)


def _path_of(name: str) -> Path | None:
    return Path(name) if os.sep in name else file_of(name)


def _plugin(name: str) -> str:
    """A plugin's name and the content of its file."""
    if os.sep in name or name.endswith(".py"):
        return f"{name} {file_digest(Path(name))}"
    folder = package_folder(name)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    file = spec.origin if spec is not None and folder is None else None
    return f"{name} {file and file_digest(Path(file))} {folder}"
