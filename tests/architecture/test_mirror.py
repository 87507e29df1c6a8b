"""tests/unit/ mirrors conformance/: who looks for the tests of a module finds them by its path."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def without_module(root: Path) -> list[str]:
    """Unit tests whose path names no module: tests/unit/a/test_b.py is for conformance/a/b."""
    unit = root / "tests" / "unit"
    missing = []
    for path in sorted(unit.rglob("test_*.py")):
        tested = (
            root / "conformance" / path.relative_to(unit).parent / path.stem.removeprefix("test_")
        )
        if not tested.with_suffix(".py").is_file() and not (tested / "__init__.py").is_file():
            missing.append(
                f"{path.relative_to(root)} tests {tested.relative_to(root)}, which is not there"
            )
    return missing


def stray(root: Path) -> list[str]:
    """Test modules in none of the folders that tests/README.md names."""
    homes = {"docs", "unit", "architecture", "integration", "browser", "faults", "quality"}
    return [
        f"{path.relative_to(root)} is in none of the folders of tests/README.md"
        for path in sorted((root / "tests").rglob("test_*.py"))
        if path.relative_to(root).parts[1] not in homes
    ]


def test_each_unit_test_has_its_module():
    assert without_module(ROOT) == []


def test_each_test_is_in_a_named_folder():
    assert stray(ROOT) == []


def test_a_unit_test_without_a_module_is_found(tmp_path):
    plant(tmp_path, "tests/unit/a/test_b.py")
    plant(tmp_path, "conformance/b.py")
    assert without_module(tmp_path) == [
        "tests/unit/a/test_b.py tests conformance/a/b, which is not there"
    ]


def test_a_module_or_a_package_will_do(tmp_path):
    plant(tmp_path, "tests/unit/a/test_b.py")
    plant(tmp_path, "tests/unit/test_a.py")
    plant(tmp_path, "conformance/a/b.py")
    plant(tmp_path, "conformance/a/__init__.py")
    assert without_module(tmp_path) == []


def test_a_stray_test_is_found(tmp_path):
    plant(tmp_path, "tests/test_b.py")
    plant(tmp_path, "tests/unit/test_b.py")
    assert stray(tmp_path) == ["tests/test_b.py is in none of the folders of tests/README.md"]


def plant(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
