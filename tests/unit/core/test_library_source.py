"""Where a library's code is: path, commit, and whether files were changed."""

import importlib
import json
import subprocess
import sys

import pytest

from conformance.core import library_source


@pytest.fixture
def source(tmp_path, monkeypatch):
    """What is said of an mlx-lm in a folder; a call adds modules to it, or changes them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mlx_lm", raising=False)

    def find(**files):
        (tmp_path / "mlx_lm").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "mlx_lm" / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return library_source.source_of.__wrapped__("mlx-lm")

    return find


def git(folder, *words):
    identity = ("-c", "user.email=a@example.org", "-c", "user.name=a")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "as it is")


def test_an_installed_release_has_none():
    assert library_source.source_of("mlx-lm") is None
    assert library_source.source_folders() == ()


def test_only_the_libraries_can_be_checkouts():
    assert library_source.source_of("pytest") is None


def test_a_folder_without_git_has_a_digest_that_changes_with_the_code(source, tmp_path):
    before = source(__init__="", _version="__version__ = '0.33.0.dev0'\n")
    assert before.text.startswith(f"{tmp_path} (no commit, ")
    assert (before.version, before.folder) == ("0.33.0.dev0", str(tmp_path))
    assert source(more="x = 1\n").text != before.text


def test_a_commit_is_named_and_changed_files_make_it_dirty(source, tmp_path):
    source(__init__="__version__ = '1.0'\n")
    commit(tmp_path)
    clean = source().text
    assert clean.startswith(f"{tmp_path}@")
    assert "dirty" not in clean
    (tmp_path / "mlx_lm" / "__pycache__").mkdir()
    (tmp_path / "mlx_lm" / "__pycache__" / "x.pyc").write_text("no code of the library")
    assert source().text == clean
    one = source(more="x = 1\n").text
    assert one.startswith(f"{clean} (dirty, ")
    assert source(more="x = 2\n").text not in (one, clean)


def test_a_commit_that_does_not_hold_the_package_is_not_named(source, tmp_path):
    (tmp_path / ".gitignore").write_text("mlx_lm\n")
    commit(tmp_path)
    assert "(no commit, " in source(__init__="__version__ = '1.0'\n").text


def test_an_editable_install_is_a_checkout_of_the_version_that_its_code_has(source, tmp_path):
    old = tmp_path / "mlx_lm.egg-info"
    old.mkdir()
    (old / "PKG-INFO").write_text("Name: mlx-lm\nVersion: 0.1\n")
    assert source(__init__="__version__ = '0.2'\n").version == "0.2"


def test_an_install_from_a_repository_names_its_commit(source, tmp_path):
    info = tmp_path / "mlx_lm-0.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: mlx-lm\nVersion: 0.5\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\n")
    assert source(__init__="") is None
    origin = {"url": "https://example.org/mlx-lm", "vcs_info": {"commit_id": "abcdef0123456789"}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    found = source()
    assert (found.text, found.version) == ("https://example.org/mlx-lm@abcdef01", "0.5")
    assert found.folder == ""
