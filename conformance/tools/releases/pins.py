"""Releases by name, and the versions of mlx, mlx-lm and transformers that go with each."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from conformance.core.errors import ReleaseError
from conformance.core.user_files import read_toml

_TABLE = Path(__file__).with_name("known_pins.toml")
LIBRARIES = ("mlx-lm", "mlx-vlm")


@dataclass(frozen=True)
class Release:
    """One release of a library, with the names that ``pip`` uses."""

    library: str
    version: str

    def __str__(self) -> str:
        return f"{self.library} {self.version}"

    @property
    def engine(self) -> str:
        """The engine of the library's batch generator; its plugin has the same name."""
        return self.library.replace("-", "_")

    @property
    def order(self) -> tuple[str, Version]:
        """A sort key that orders a library's releases from the oldest to the newest."""
        return (self.library, Version(self.version))


@dataclass(frozen=True)
class Pins:
    """Versions that the user wants installed.

    Attributes:
        all: by distribution, with every release.
        one: the same for single releases; takes precedence over ``all``.
    """

    all: Mapping[str, str]
    one: Mapping[Release, Mapping[str, str]]

    def beside(self, release: Release) -> dict[str, str]:
        """The versions wanted with a release, by distribution."""
        return {**self.all, **self.one.get(release, {})}


@functools.cache
def _table() -> dict[str, dict[str, dict[str, str]]]:
    """For each library and release, the versions that were seen to install and import with it."""
    found: dict[str, dict[str, dict[str, str]]] = read_toml(_TABLE, ReleaseError)
    return found


def parse(texts: Iterable[str]) -> tuple[Release, ...]:
    """Parse releases such as ``mlx-lm==0.31.2,0.31.3``; returned from the oldest to the newest.

    A library alone stands for all its releases in the table of pins.

    Raises:
        ReleaseError: a text has another form, names another library, or a release that is too
            old for the adapters.
    """
    found = {release for text in texts for release in _parse(text)}
    return tuple(sorted(found, key=lambda release: release.order))


def _parse(text: str) -> list[Release]:
    library, _, versions = text.partition("==")
    if library not in LIBRARIES:
        raise ReleaseError(
            f"{text!r}: {library!r} is no library whose releases can be compared; there are "
            f"{', '.join(LIBRARIES)} (write, for example, mlx-lm==0.31.2,0.31.3)"
        )
    known = list(_table()[library])
    wanted = [version.strip() for version in versions.split(",")] if versions else known
    for version in wanted:
        try:
            too_old = Version(version) < Version(known[0])
        except InvalidVersion:
            raise ReleaseError(f"{text!r}: {version!r} is no version of a release") from None
        if too_old:
            raise ReleaseError(
                f"{library} {version} is older than {known[0]}, as far back as the adapters reach"
            )
    return [Release(library, version) for version in wanted]


def before(release: Release, version: str = "") -> Release:
    """The release with that version, else the newest older one in the table of pins.

    Raises:
        ReleaseError: it is the release itself, or there is no older one.
    """
    if version:
        (other,) = parse([f"{release.library}=={version}"])
    else:
        known = [r for r in parse([release.library]) if r.order < release.order]
        if not known:
            raise ReleaseError(f"no release before {release} is known: name one by --from")
        other = known[-1]
    if other == release:
        raise ReleaseError(f"--from {version}: compare {release} with another release")
    return other


def known_pins(release: Release) -> dict[str, str] | None:
    """The versions known to work with a release, by distribution; ``None`` if not in the table."""
    pins = _table()[release.library].get(release.version)
    return None if pins is None else {release.library: release.version, **pins}


def parse_pins(texts: Iterable[str]) -> Pins:
    """Parse versions such as ``mlx==0.31.2`` or ``mlx-lm==0.30.4:mlx==0.30.3``.

    Raises:
        ReleaseError: a text has another form, or names no release before its colon.
    """
    for_all: dict[str, str] = {}
    for_one: dict[Release, dict[str, str]] = {}
    for text in texts:
        before, colon, pin = text.rpartition(":")
        name, equals, version = pin.partition("==")
        if not (name and equals and version) or (colon and "==" not in before):
            raise ReleaseError(
                f"--pin {text!r}: write NAME==VERSION, for example mlx==0.31.2, or for one release "
                "mlx-lm==0.31.3:mlx==0.31.2"
            )
        targets = [for_one.setdefault(r, {}) for r in parse([before])] if colon else [for_all]
        for target in targets:
            target[name] = version
    return Pins(for_all, for_one)


def requirement(name: str, version: str = "") -> str:
    """A pin in ``pip``'s form, unversioned if ``version`` is empty; on Linux, mlx for CPUs."""
    extra = "[cpu]" if name == "mlx" and sys.platform == "linux" else ""
    return f"{name}{extra}=={version}" if version else f"{name}{extra}"
