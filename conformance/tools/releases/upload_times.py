"""The package index's upload times of a release."""

from __future__ import annotations

import functools
import re
import sys
from datetime import datetime, timedelta

import httpx2
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from conformance.core.errors import ReleaseError
from conformance.core.http_clients import client
from conformance.core.processes import run_to_end
from conformance.core.user_files import parse_object
from conformance.tools.releases.pins import Release

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
