"""Output goes where the user said, and replaces regular files only."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from conformance.core import output_files
from conformance.core.output_files import is_stream, replace_whole, sweep, write_whole


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


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [(output_files.os, "fsync", OSError), (output_files.Path, "replace", KeyboardInterrupt)],
)
def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch, place, name, error):
    def fails(*_):
        raise error

    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(place, name, fails)
    with pytest.raises(error):
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


# Writes into a file, and at the moment before that is replaced does what is said.
WRITES = (
    "import os, pathlib, sys, time; from conformance.core import output_files\n"
    "real = pathlib.Path.replace\n"
    "def replace(self, target):\n"
    "    print(self.name, flush=True)\n"
    "    {then}\n"
    "    return real(self, target)\n"
    "pathlib.Path.replace = replace\n"
    "output_files.write_whole(pathlib.Path(sys.argv[1]), 'new')\n"
)


def writing(path, then):
    """A process that writes the file, and the name of what it has written so far."""
    command = [sys.executable, "-c", WRITES.format(then=then), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    return process, path.with_name(process.stdout.readline().strip())


def test_what_sigkill_left_is_removed_by_the_next_that_writes_the_file(tmp_path):
    path, other = tmp_path / "a.b.jsonl", tmp_path / "other"
    process, left = writing(path, "time.sleep(60)")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert left.read_text() == "new"
    assert not path.exists()
    write_whole(other, "another file")
    assert left.exists()
    write_whole(path, "whole")
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_what_a_living_process_is_writing_is_left_to_it(tmp_path):
    path = tmp_path / "a"
    process, own = writing(path, "sys.stdin.readline()")
    write_whole(path, "old")
    sweep(tmp_path)
    assert own.exists()
    process.communicate("\n")
    assert process.returncode == 0
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_number_that_is_used_again_is_another_process(tmp_path):
    left = tmp_path / f".a.{os.getpid()}.partial"
    left.touch()
    sweep(tmp_path)
    assert left.exists()
    os.utime(left, (1000, 1000))  # this process was not there
    sweep(tmp_path)
    assert not left.exists()


def test_what_another_machine_writes_is_left_to_it_for_a_day(tmp_path):
    theirs = tmp_path / f".a.01234567-89abcdef.{2**22 + 1}.partial"
    theirs.touch()
    sweep(tmp_path)
    assert theirs.exists()
    day = time.time() - 90_000
    os.utime(theirs, (day, day))
    sweep(tmp_path)
    assert not theirs.exists()


def test_a_long_name_has_room_for_more(tmp_path):
    path = tmp_path / ("\u00fc" * 127)
    replace_whole(path, b"new")
    assert path.read_bytes() == b"new"
