"""Output goes where the user said, and replaces regular files only."""

import os
import subprocess
import sys
import threading

import pytest

from conformance.core import output_files
from conformance.core.output_files import is_stream, sweep, write_whole


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_its_target(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to(target)
    write_whole(link, "text")
    assert link.is_symlink()
    assert target.read_text() == "text"


def test_a_pipe_is_written_into(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "text")
    reader.join(10)
    assert got == ["text"]
    assert is_stream(pipe)


def test_a_device_stays_one():
    write_whole(output_files.Path("/dev/null"), "text")
    assert is_stream(output_files.Path("/dev/null"))
    assert not os.path.isfile("/dev/null")  # noqa: PTH113


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(output_files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "")))
    with pytest.raises(OSError):  # noqa: PT011
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    left, other = tmp_path / f".a.{done.pid}.partial", tmp_path / f".b.{os.getpid()}.partial"
    mine = tmp_path / "a.partial"
    for path in (left, other, mine):
        path.touch()
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([other, mine]), "of a process that runs it stays"
