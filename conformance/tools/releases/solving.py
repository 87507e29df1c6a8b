"""The versions to install with a release: from the table, else as of the day it was uploaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from conformance.core.errors import ReleaseError
from conformance.core.output_files import write_whole
from conformance.core.user_files import read_object
from conformance.tools.releases import installers, upload_times
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
    found = installers.solve(wanted, upload_times.uploaded(release))
    held = {name: found[name] for name in _HELD if name in found}
    cache.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(held))
    return held
