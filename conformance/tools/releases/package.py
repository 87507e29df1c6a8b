"""This project as a folder that another environment puts on its path.

The project is not installed there. An environment can thus be used by many versions of this
project, whose requirements of mlx, mlx-lm and mlx-vlm do not exclude older ones.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import conformance
from conformance.core.content_keys import folder_digest, text_digest
from conformance.run.hookspecs import PROJECT

_NAME = "mlx-conformance"
_UNWANTED = shutil.ignore_patterns("__pycache__", "*.pyc")


# Plugins whose faults and mends import modules that another release may lack.
_OF_RELEASE = {
    name: f"conformance.plugins.servers.{name.removesuffix('_server')}_of_release"
    for name in ("mlx_lm_server", "mlx_vlm_server")
}


def needs(without: Collection[str]) -> tuple[str, ...]:
    """The requirements of the installed project, except the distributions in ``without``."""
    given = [Requirement(text) for text in metadata.requires(_NAME) or ()]
    wanted = [r for r in given if r.name not in without and _applies(r)]
    return tuple(sorted(f"{r.name}{r.specifier}" for r in wanted))


def _applies(requirement: Requirement) -> bool:
    """Whether the requirement applies here without any extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def unpack(folder: Path, plugins: Collection[str]) -> Path:
    """A folder below ``folder`` that holds the running package and names these of its plugins.

    It is made once for each content of the package, atomically.
    """
    source = Path(conformance.__file__).parent
    key = text_digest(*sorted(plugins), folder_digest(source))[:16]
    target = folder / f"package-{key}"
    if target.is_dir():
        return target
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder))
    try:
        # All files, including those of linked folders: known defects and kept schedules.
        # Not `ignore_dangling_symlinks`: it considers relative links dangling unless this process
        # happens to be in their folder.
        shutil.copytree(source, making / conformance.__name__, ignore=_UNWANTED)
        _write_metadata(making / f"mlx_conformance-{conformance.__version__}.dist-info", plugins)
        put(making, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def put(making: Path, target: Path) -> None:
    """Rename a folder to its final name, unless another run has made the same meanwhile.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        making.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _write_metadata(folder: Path, plugins: Collection[str]) -> None:
    """Write the metadata that an interpreter needs to find the project's plugins."""
    entries = [
        f"{entry.name} = {_OF_RELEASE.get(entry.name, entry.value)}\n"
        for entry in metadata.distribution(_NAME).entry_points
        if entry.group == PROJECT and entry.name in plugins
    ]
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {conformance.__version__}\n",
        encoding="utf-8",
    )
    text = f"[{PROJECT}]\n" + "".join(entries)
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")
