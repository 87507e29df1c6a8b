"""Which modules of a library's checkout differ from a commit."""

import subprocess

import pytest

from conformance.core.errors import ConformanceError
from conformance.run.reuse import checkouts
from conformance.run.reuse.checkouts import changed_modules


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A library in a git checkout, with one commit."""
    folder = tmp_path / "checkout/lib"
    (folder / "models").mkdir(parents=True)
    for name in ("__init__.py", "generate.py", "models/__init__.py", "models/llama.py"):
        (folder / name).write_text("x = 1\n")
    git(folder.parent, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    monkeypatch.setattr(checkouts, "package_folder", lambda name: folder)
    return folder


def test_nothing_changed(package):
    assert changed_modules("lib", "HEAD") == frozenset()


def test_changed_new_and_staged_modules_are_named(package):
    (package / "models/llama.py").write_text("x = 2\n")
    (package / "models/new.py").write_text("x = 2\n")
    (package / "models/__init__.py").write_text("x = 2\n")
    (package / "README.md").write_text("x")
    git(package, "add", "models/__init__.py")
    assert changed_modules("lib", "HEAD") == {"lib.models.llama", "lib.models.new", "lib.models"}


def test_an_older_commit_counts_what_was_committed_since(package):
    (package / "generate.py").write_text("x = 2\n")
    git(package, "commit", "--quiet", "-a", "-m", "second")
    assert changed_modules("lib", "HEAD") == frozenset()
    assert changed_modules("lib", "HEAD~1") == {"lib.generate"}


def test_a_renamed_file_is_two(package):
    git(package, "mv", "models/llama.py", "models/alpaca.py")
    assert changed_modules("lib", "HEAD") == {"lib.models.llama", "lib.models.alpaca"}


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_what_git_does_not_look_at_counts_as_changed(package, flag):
    (package.parent / ".gitignore").write_text("own.py\n")
    (package / "models/own.py").write_text("x = 1\n")
    git(package, "update-index", flag, "models/llama.py")
    (package / "models/llama.py").write_text("x = 2\n")
    assert changed_modules("lib", "HEAD") == {"lib.models.llama", "lib.models.own"}


def test_a_hook_of_another_repository_does_not_lead_there(package, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "--quiet")
    (package / "generate.py").write_text("x = 2\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    assert changed_modules("lib", "HEAD") == {"lib.generate"}


@pytest.mark.parametrize("ref", ["nothing", "--output=x"])
def test_an_unknown_commit_is_refused(package, ref):
    with pytest.raises(ConformanceError, match="git knows no commit"):
        changed_modules("lib", ref)


def test_what_is_no_checkout_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkouts, "package_folder", lambda name: tmp_path)
    with pytest.raises(ConformanceError, match="it is no git checkout"):
        changed_modules("lib", "HEAD")


def test_an_ignored_folder_in_another_projects_checkout_is_refused(package, monkeypatch):
    installed = package.parent / ".venv"
    installed.mkdir()
    (package.parent / ".gitignore").write_text(".venv\n")
    (installed / "__init__.py").touch()
    monkeypatch.setattr(checkouts, "package_folder", lambda name: installed)
    with pytest.raises(ConformanceError, match="no part of the git checkout around it"):
        changed_modules("lib", "HEAD")


def test_a_library_that_is_not_installed_is_refused():
    with pytest.raises(ConformanceError, match="no_such_library is not installed"):
        changed_modules("no_such_library", "HEAD")
