"""Environments that are kept: listed with their sizes, and removed."""

import importlib.metadata
import subprocess
import sys

import pytest

from conformance.tools.releases import environments
from conformance.tools.releases.environments import kept, remove


def test_only_our_own_entries_are_listed_with_their_sizes_and_removed(tmp_path):
    for name in ("mlx-lm-0.31.3-abc", "package-1", "making-x", "private"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "solved-mlx-lm-0.31.3.json").write_text("{}")
    found = kept(tmp_path)
    assert [entry.path.name for entry in found] == [
        "making-x",
        "mlx-lm-0.31.3-abc",
        "package-1",
        "solved-mlx-lm-0.31.3.json",
    ]
    assert all(entry.size >= 10_000 for entry in found[:3])
    remove(found)
    assert [path.name for path in tmp_path.iterdir()] == ["private"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert kept(tmp_path / "none") == ()


SCRIPT = """
import importlib.metadata as m, conformance
print(conformance.__file__)
print(*sorted(e.name for e in m.entry_points(group="mlx_conformance")))
"""


def test_another_interpreter_finds_the_package_and_only_the_named_plugins(tmp_path):
    folder = environments.unpack(tmp_path, {"mlx_lm"})
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
    folder = environments.unpack(tmp_path, {server})
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
    monkeypatch.setattr(environments.conformance, "__file__", str(source / "__init__.py"))
    first = environments.unpack(tmp_path, set())
    assert (first / "conformance" / "corpus" / "schedule.json").read_text() == "{}"
    kept.write_text("[]")
    assert environments.unpack(tmp_path, set()) != first


def test_it_is_made_once(tmp_path):
    folder = environments.unpack(tmp_path, {"mlx_lm"})
    assert environments.unpack(tmp_path, {"mlx_lm"}) == folder
    assert environments.unpack(tmp_path, {"mlx_vlm"}) != folder
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_project_needs_is_reported_without_the_libraries_and_the_extras():
    needs = environments.needs({"mlx", "mlx-lm", "mlx-vlm"})
    assert any(text.startswith("numpy") for text in needs)
    assert not any(text.startswith(("mlx", "torch", "ruff")) for text in needs)
