"""What a process opens to read is noted, as it was then; what it makes itself is not."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

from conformance.reference.installed_files import Digests, signature
from conformance.reference.surroundings import Environment
from conformance.run.reuse import opened_files as module
from conformance.run.reuse.opened_files import number_opened, opened_files, watch


@pytest.fixture
def noted(monkeypatch):
    """What was noted since the test began, by path."""
    watch()
    monkeypatch.setattr(module, "_opened", {})
    monkeypatch.setattr(module, "_written", set())
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: "/no/such/folder")
    environment = Environment.first()
    return lambda *left_out: dict(opened_files(environment, left_out))


READERS = {
    "open": lambda path: path.open().close(),
    "os.open": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "bytes": lambda path: open(os.fsencode(path)).close(),  # noqa: PTH123
    "sqlite": lambda path: sqlite3.connect(path).close(),
}


@pytest.mark.parametrize("way", READERS)
def test_a_file_that_is_read_is_noted_as_it_was(noted, tmp_path, way):
    path = tmp_path / "data"
    os.mknod(path)  # not by opening it
    before = signature(path)
    READERS[way](path)
    path.chmod(0o600)
    assert noted() == {str(path): before}
    assert number_opened() >= 1
    assert noted(str(path)) == {}


def test_one_that_is_not_there_is_noted_too(noted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        open("nothing")  # noqa: PTH123, SIM115
    assert noted() == {str(tmp_path / "nothing"): None}


@pytest.mark.parametrize("mode", ["r+", "a+"])
def test_one_that_is_changed_was_read_before(noted, tmp_path, mode):
    path = tmp_path / "data"
    os.mknod(path)
    before = signature(path)
    path.open(mode).close()
    path.write_text("x")
    assert noted() == {str(path): before}


@pytest.mark.parametrize("mode", ["w", "a", "x"])
def test_one_that_this_process_makes_is_not(noted, tmp_path, mode):
    path = tmp_path / "made"
    path.open(mode).close()
    path.read_text()
    assert noted() == {}


def test_neither_is_what_is_installed_or_of_the_system(noted):
    Path(os.__file__).read_text()
    Path("/proc/self/status").read_text()
    Digests.here().file.exists() and Digests.here().file.read_bytes()
    assert noted() == {}


def test_nor_what_was_made_for_a_moment_of_this_run(noted, tmp_path, monkeypatch):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    time.sleep(0.02)
    made, data = tmp_path / "made", tmp_path / "data"
    for path in (made, data):
        os.mknod(path)
        path.read_text()
    made.unlink()
    assert noted().keys() >= {str(data)}
    assert str(made) not in noted()
