"""What is installed beside a release: from the table, else as of the day it was uploaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from conformance.core.errors import ReleaseError
from conformance.core.output_files import write_whole
from conformance.core.user_files import read_object
from conformance.tools.releases import installers, upload_times
from conformance.tools.releases.pins import LIBRARIES, Release, known_pins, requirement

# What a release's cases depend on; the rest of what it needs may be of any version that fits.
_HELD = (*LIBRARIES, "mlx", "transformers")


def choices(
    release: Release, given: Mapping[str, str], cache: Path
) -> Iterator[tuple[str, dict[str, str]]]:
    """The versions to try beside a release, the best first, each with where it is from.

    Args:
        given: versions that replace those that are found, or come to them.
        cache: a folder, where what the resolver found is kept.

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
    """What the resolver gives as of the day of the release, found once."""
    file = cache / f"solved-{release.library}-{release.version}.json"
    if file.is_file():
        return dict(read_object(file, ReleaseError))
    wanted = [f"{release.library}=={release.version}", requirement("mlx"), "transformers"]
    # The scenarios come with mlx-lm's plugin, also where mlx-vlm no longer needs it.
    wanted += ["mlx-lm"] if release.library != "mlx-lm" else []
    found = installers.solve(wanted, upload_times.uploaded(release))
    held = {name: found[name] for name in _HELD if name in found}
    cache.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(held))
    return held
