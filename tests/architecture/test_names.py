"""Two modules have one name only where they are the same kind of thing in parallel folders."""

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]

# A plugin has the same modules as the next one, and a command is called like what it runs.
PARALLEL = ("plugins/", "power/faults/", "power/properties/", "app/cli/")
# The protocol, and what implements it.
PROTOCOLS = {"engine", "library"}


def repeated(root: Path) -> list[str]:
    """Names of modules that stand for several things."""
    package = root / "conformance"
    places = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if not place.startswith(PARALLEL) and path.stem not in {"__init__", *PROTOCOLS}:
            places[path.stem].append(place)
    return [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]


def test_each_name_stands_for_one_thing():
    assert repeated(ROOT) == []


def test_a_repeated_name_is_found(tmp_path):
    for place in ("core/base.py", "run/base.py", "run/__init__.py", "core/__init__.py"):
        plant(tmp_path, place)
    assert repeated(tmp_path) == ["base: core/base.py, run/base.py"]


def test_parallel_folders_and_protocols_may_repeat_names(tmp_path):
    for place in ("core/engine.py", "reference/engine.py", "plugins/a/masks.py"):
        plant(tmp_path, place)
    for place in ("plugins/b/masks.py", "app/cli/power.py", "power/mutation/power.py"):
        plant(tmp_path, place)
    assert repeated(tmp_path) == []


def plant(root: Path, place: str) -> None:
    """An empty module."""
    path = root / "conformance" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
