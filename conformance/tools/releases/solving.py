"""The versions to install with a release: from the table, else as of the day it was uploaded."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from conformance.core.errors import ReleaseError
from conformance.core.http_clients import client
from conformance.core.output_files import write_whole
from conformance.core.processes import run_to_end
from conformance.core.user_files import parse_object, read_object
from conformance.tools.releases import installers
from conformance.tools.releases.pins import LIBRARIES, Release, known_pins, requirement

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
