"""No file of the project names a package registry: where packages come from is the user's own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file is not its own finding.
HOSTS = (
    "py" + "pi.",
    "python" + "hosted",
    "ana" + "conda.org",
    "conda-" + "forge",
    "index" + "-url",
)
NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__"}


def registries_named(root: Path) -> list[str]:
    """Lines that name the host of a package registry, or the option that sets one."""
    pattern = re.compile("|".join(re.escape(host) for host in HOSTS), re.IGNORECASE)
    return [
        f"{path.relative_to(root)}:{number} names {found[0]!r}"
        for path in _files(root)
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if (found := pattern.search(line))
    ]


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        ignored = path.name in NOT_OURS or path.name.endswith(("_cache", ".egg-info"))
        if ignored or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_the_project_names_no_registry():
    assert registries_named(ROOT) == []


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", ["ci/setup.sh", ".github/workflows/ci.yml", "README.md"])
def test_a_registry_is_found_wherever_it_is_named(name, host, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"fine\npip install --at https://{host.upper()}org/simple\n", encoding="utf-8")
    assert registries_named(tmp_path) == [f"{name}:2 names {host.upper()!r}"]


def test_what_is_not_ours_is_not_read(tmp_path):
    path = tmp_path / ".venv" / "x.txt"
    path.parent.mkdir()
    path.write_text(HOSTS[0], encoding="utf-8")
    assert registries_named(tmp_path) == []
