"""Releases by name, and the versions that go with each: from the table, else of its day."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from conformance.core.errors import ReleaseError
from conformance.core.http_clients import client
from conformance.core.output_files import write_whole
from conformance.core.processes import run_to_end
from conformance.core.user_files import parse_object, read_object, read_toml
from conformance.tools.releases import installers

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


# A release's cases depend on these; its other requirements may have any version that fits.
_HELD = (*LIBRARIES, "mlx", "transformers")


def choices(
    release: Release, given: Mapping[str, str], cache: Path
) -> Iterator[tuple[str, dict[str, str]]]:
    """The versions to try with a release, best first, each with its origin.

    Args:
        given: versions that replace or supplement those that are found.
        cache: a folder for the resolver's results.

    Raises:
        ReleaseError: the resolver finds none.
    """
    known = known_pins(release)
    if known is not None:
        yield "the table", known | dict(given)
    solved = _solved(release, cache)
    if solved != known:
        yield "the resolver", solved | dict(given)


def _solved(release: Release, cache: Path) -> dict[str, str]:
    """The resolver's result as of the day of the release, computed once."""
    file = cache / f"solved-{release.library}-{release.version}.json"
    if file.is_file():
        return dict(read_object(file, ReleaseError))
    wanted = [f"{release.library}=={release.version}", requirement("mlx"), "transformers"]
    # The scenarios come with mlx-lm's plugin, even if mlx-vlm no longer needs it.
    wanted += ["mlx-lm"] if release.library != "mlx-lm" else []
    found = installers.solve(wanted, uploaded(release))
    held = {name: found[name] for name in _HELD if name in found}
    cache.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(held))
    return held


# The package index's upload times of a release ----------------------------------------------------

_SECONDS = 30
# The name in the media type of PEP 691 is not a host.
_TYPE = "application/vnd.{}.simple.v1+json".format("pypi")
# A release's own files are uploaded one after another.
_SLACK = timedelta(hours=1)


def uploaded(release: Release) -> datetime:
    """The time when all files of the release had been uploaded, in UTC.

    Source: the simple API of package indexes as JSON, PEP 691, with upload times, PEP 700.

    Raises:
        ReleaseError: the index cannot be reached, or does not have that release.
    """
    url = f"{index()}/{release.library}/"
    try:
        with client(_SECONDS, as_pip=True) as asking:
            answer = asking.get(url, headers={"Accept": _TYPE})
    except httpx2.HTTPError as error:
        raise ReleaseError(f"{url} cannot be read: {error}") from error
    if answer.status_code != httpx2.codes.OK:
        raise ReleaseError(f"{url} answers {answer.status_code}: is there such a package?")
    files = parse_object(answer.text, url, ReleaseError).get("files") or []
    try:
        own = [file for file in files if _version_of(file["filename"]) == release.version]
        times = [datetime.fromisoformat(file["upload-time"]) for file in own]
    except (KeyError, TypeError, ValueError) as error:
        raise ReleaseError(f"{url}: has a file without its name or time of upload") from error
    if not times:
        raise ReleaseError(f"{url}: has no file of release {release.version}")
    return max(times) + _SLACK


def _version_of(name: str) -> str:
    """The version of a wheel or a source archive; empty for other files."""
    try:
        found = parse_wheel_filename if name.endswith(".whl") else parse_sdist_filename
        return str(found(name)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


@functools.cache
def index() -> str:
    """The URL of the index that pip uses here: the configured one, or pip's default.

    Raises:
        ReleaseError: pip is not available.
    """
    named = re.findall(r"(?m)^\S+\.index.url='(.+?)/?'$", _pip("config", "list"))
    if named:  # the environment comes last and takes precedence
        return str(named[-1])
    default = re.search(r"\(default\s+(\S+?)/?\)", _pip("install", "--help"))
    if default is None:
        raise ReleaseError("pip, which knows the package index, is not installed here")
    return default[1]


def _pip(*arguments: str) -> str:
    """The output of pip; empty if it fails."""
    done = run_to_end([sys.executable, "-m", "pip", *arguments])
    return done.output if done.good else ""
