"""Releases by name, and which mlx, mlx-lm and transformers go with each."""

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
    """One release of a library, by the names that ``pip`` knows."""

    library: str
    version: str

    def __str__(self) -> str:
        return f"{self.library} {self.version}"

    @property
    def engine(self) -> str:
        """The engine of that library's batch generator, which is also its plugin's name."""
        return self.library.replace("-", "_")

    @property
    def order(self) -> tuple[str, Version]:
        """Sorts releases of a library from the oldest to the newest."""
        return (self.library, Version(self.version))


@dataclass(frozen=True)
class Pins:
    """Versions that the user wants installed.

    Attributes:
        all: by distribution, beside every release.
        one: the same beside one release, which comes before ``all``.
    """

    all: Mapping[str, str]
    one: Mapping[Release, Mapping[str, str]]

    def beside(self, release: Release) -> dict[str, str]:
        """What is wanted beside a release, by distribution."""
        return {**self.all, **self.one.get(release, {})}


@functools.cache
def _table() -> dict[str, dict[str, dict[str, str]]]:
    """Of each library, by its releases, what was seen to install and to import with them."""
    found: dict[str, dict[str, dict[str, str]]] = read_toml(_TABLE, ReleaseError)
    return found


def parse(texts: Iterable[str]) -> tuple[Release, ...]:
    """Releases of texts such as ``mlx-lm==0.31.2,0.31.3``, from the oldest to the newest.

    A library alone stands for all its releases in the table of pins.

    Raises:
        ReleaseError: a text is of another form, names another library, or a release that is older
            than the adapters reach.
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


def known_pins(release: Release) -> dict[str, str] | None:
    """What is known to work with a release, by distribution; ``None`` of one not in the table."""
    pins = _table()[release.library].get(release.version)
    return None if pins is None else {release.library: release.version, **pins}


def parse_pins(texts: Iterable[str]) -> Pins:
    """Versions of texts such as ``mlx==0.31.2`` or ``mlx-lm==0.30.4:mlx==0.30.3``.

    Raises:
        ReleaseError: a text is of another form, or names no release before its colon.
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
    """A pin as ``pip`` reads it, of any version without one; on Linux mlx comes for CPUs."""
    extra = "[cpu]" if name == "mlx" and sys.platform == "linux" else ""
    return f"{name}{extra}=={version}" if version else f"{name}{extra}"
