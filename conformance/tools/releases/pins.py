"""Releases by name, and which mlx, mlx-lm and transformers go with each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from conformance.core.errors import ReleaseError

# Known to install and to import together. A release between two of these takes the pins of the
# older one, a newer one those of the newest.
_TOGETHER: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (
    # library, release, mlx, transformers, what else
    ("mlx-lm", "0.31.1", "0.31.1", "5.23.0", {}),
    ("mlx-lm", "0.31.2", "0.31.1", "5.23.0", {}),
    ("mlx-lm", "0.31.3", "0.31.2", "5.23.0", {}),
    ("mlx-lm", "0.32.0", "0.32.2", "5.23.0", {}),
    ("mlx-lm", "0.32.1", "0.32.2", "5.23.0", {}),
    ("mlx-lm", "0.32.2", "0.32.4", "5.23.0", {}),
    # The ladder's plugin reads mlx-lm, also where mlx-vlm no longer needs it. Without torchvision
    # the processors of the Qwen families of 0.4 cannot be made: transformers does not take them
    # without a video processor, and has none. From 0.5 on the library has its own.
    ("mlx-vlm", "0.4.4", "0.31.1", "5.23.0", {"mlx-lm": "0.31.1", "torchvision": "0.28.0"}),
    ("mlx-vlm", "0.5.0", "0.31.2", "5.23.0", {"mlx-lm": "0.31.3"}),
    ("mlx-vlm", "0.6.4", "0.31.2", "5.12.1", {"mlx-lm": "0.31.3"}),
    ("mlx-vlm", "0.7.8", "0.32.3", "5.23.0", {"mlx-lm": "0.31.3"}),
    ("mlx-vlm", "0.7.10", "0.32.4", "5.23.0", {"mlx-lm": "0.31.3"}),
)
LIBRARIES = tuple(dict.fromkeys(row[0] for row in _TOGETHER))


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
    known = [row[1] for row in _TOGETHER if row[0] == library]
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


def pins_of(release: Release, overrides: Mapping[str, str]) -> dict[str, str]:
    """The versions to install, by distribution: the release, and what works with it.

    Args:
        release: which is installed.
        overrides: versions that replace those of the table or come to them.
    """
    rows = [row for row in _TOGETHER if row[0] == release.library]
    _, _, mlx, transformers, more = max(
        (row for row in rows if Version(row[1]) <= Version(release.version)),
        key=lambda row: Version(row[1]),
    )
    pins = {release.library: release.version, "mlx": mlx, "transformers": transformers}
    return pins | more | dict(overrides)


def parse_pins(texts: Iterable[str]) -> dict[str, str]:
    """Versions by distribution, of texts such as ``mlx==0.31.2``.

    Raises:
        ReleaseError: a text is of another form.
    """
    pins = {}
    for text in texts:
        name, equals, version = text.partition("==")
        if not (name and equals and version):
            raise ReleaseError(f"--pin {text!r}: write NAME==VERSION, for example mlx==0.31.2")
        pins[name] = version
    return pins


def requirement(name: str, version: str) -> str:
    """A pin as ``pip`` reads it; on Linux mlx comes with its part for CPUs."""
    extra = "[cpu]" if name == "mlx" and sys.platform == "linux" else ""
    return f"{name}{extra}=={version}"
