"""This project as a folder on another interpreter's path."""

import importlib.metadata
import subprocess
import sys

import pytest

from conformance.tools.releases import package

SCRIPT = """
import importlib.metadata as m, conformance
print(conformance.__file__)
print(*sorted(e.name for e in m.entry_points(group="mlx_conformance")))
"""


def test_another_interpreter_finds_the_package_and_only_the_named_plugins(tmp_path):
    folder = package.unpack(tmp_path, {"mlx_lm"})
    found = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT],
        env={"PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert found == [str(folder / "conformance" / "__init__.py"), "mlx_lm"]


@pytest.mark.parametrize("server", ["mlx_lm_server", "mlx_vlm_server"])
def test_a_server_of_another_release_comes_without_faults_and_mends(tmp_path, server):
    folder = package.unpack(tmp_path, {server})
    (entry,) = importlib.metadata.Distribution.at(next(folder.glob("*.dist-info"))).entry_points
    hooks = {name for name in dir(entry.load()) if name.startswith("conformance_")}
    assert entry.name == server
    assert hooks == {"conformance_engine_names", "conformance_engines", "conformance_scenarios"}
    assert entry.load().conformance_engines()[0].name == server


def test_linked_folders_come_along_and_a_change_in_them_makes_another(tmp_path, monkeypatch):
    linked, source = tmp_path / "corpus", tmp_path / "conformance"
    linked.mkdir()
    source.mkdir()
    (source / "__init__.py").touch()
    (source / "corpus").symlink_to("../corpus")  # as in a checkout: relative
    kept = linked / "schedule.json"
    kept.write_text("{}")
    monkeypatch.setattr(package.conformance, "__file__", str(source / "__init__.py"))
    first = package.unpack(tmp_path, set())
    assert (first / "conformance" / "corpus" / "schedule.json").read_text() == "{}"
    kept.write_text("[]")
    assert package.unpack(tmp_path, set()) != first


def test_it_is_made_once(tmp_path):
    folder = package.unpack(tmp_path, {"mlx_lm"})
    assert package.unpack(tmp_path, {"mlx_lm"}) == folder
    assert package.unpack(tmp_path, {"mlx_vlm"}) != folder
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_project_needs_is_reported_without_the_libraries_and_the_extras():
    needs = package.needs({"mlx", "mlx-lm", "mlx-vlm"})
    assert any(text.startswith("numpy") for text in needs)
    assert not any(text.startswith(("mlx", "torch", "ruff")) for text in needs)
