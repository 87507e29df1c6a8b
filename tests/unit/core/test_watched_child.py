"""A command in a child process: its exit code, its signals, its end."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from started_processes import STARTS, WAITS, ends, starter

HEAD = """
import os, signal, sys, time
from conformance.core import first_signals, watched_child
watched_child.FORKS = {forks}
first_signals.leave_at_once()
command = [sys.executable, *sys.orig_argv[1:]]
end = watched_child.go_on_in_child(command, "it", early=2)
"""


@pytest.fixture(params=[True, False], ids=["fork", "anew"])
def program(request):
    """Code as the arguments of Python, for both ways in which a child is started."""
    return lambda body: [sys.executable, "-c", HEAD.format(forks=request.param) + body]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("end.note(0)", 0, ""),
        ("end.note(1); os._exit(0)", 1, ""),
        ("end.note(1); sys.exit(1)", 1, ""),
        ("sys.exit(2)", 2, ""),
        ("os._exit(0)", 70, "ended before its work was done (exit status 0)"),
        ("os._exit(3)", 3, "ended before its work was done (exit status 3)"),
        ("os.abort()", 134, "crashed before its work was done (signal SIGABRT)"),
        ("end.note(0); os.abort()", 134, "crashed after its work (signal SIGABRT)"),
        ("end.note(1); os.abort()", 1, "crashed after its work (signal SIGABRT)"),
        ("end.note(0); os._exit(5)", 5, "ended after its work (exit status 5)"),
    ],
)
def test_the_exit_code_is_that_of_the_command(program, body, code, said):
    done = subprocess.run(program(body), capture_output=True, text=True, check=False)
    assert done.returncode == code, done
    assert done.stderr.startswith(f"conformance: `it` {said}: " if said else "")
    assert bool(done.stderr) == bool(said)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers (prctl)")
def test_a_process_that_the_child_left_is_ended(tmp_path):
    """One that forks and ends leaves its fork running, which ignores what would end it."""
    body = f"""
if (left := os.fork()) == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
open({str(tmp_path / "pid")!r}, "w").write(str(left))
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", HEAD.format(forks=True) + body],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert done.returncode == 70
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_what_was_printed_before_is_printed_once(program):
    arguments = program("print('after'); end.note(0)")
    arguments[-1] = "print('before', end=' ')\n" + arguments[-1]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.count("after") == 1
    assert done.stdout.replace("before ", "") == "after\n"


def test_a_closed_stream_is_no_place_to_write_the_exit_code(program):
    """As by ``<&- >&-`` in a shell: what is written there is taken for nothing else."""
    arguments = program("os.write(1, b'7\\n'); os._exit(0)")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 70), done


COUNTS = """
counted = []
signal.signal(signal.SIGINT, lambda *_: counted.append(1))
signal.signal(signal.SIGTERM, lambda *_: counted.append(1))
print("ready", flush=True)
until = time.monotonic() + 20
while not counted and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.3)
print(len(counted), flush=True)
end.note(0)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [True, False])
def test_a_signal_comes_once(program, number, group):
    process = subprocess.Popen(
        program(COUNTS), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    (os.killpg if group else os.kill)(process.pid, number)
    assert process.communicate(timeout=30)[0] == "1\n"
    assert process.returncode == 0


def test_one_that_comes_before_the_command_begins_ends_it_by_2(program):
    arguments = program("time.sleep(20)")
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 20
    while not psutil.Process(process.pid).children():
        assert time.monotonic() < until
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[1] == "conformance: interrupted\n"
    assert process.returncode == 2


def test_what_is_ignored_stays_ignored(program):
    """As by ``nohup``, and of a shell's background job."""
    ignores = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    body = "os.kill(os.getppid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGINT); end.note(0)"
    arguments = program(body)
    arguments[-1] = ignores + arguments[-1]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


CHILD = (
    "import os; from conformance.core import watched_child; "
    f"watched_child.end_with_parent(os.getppid()); {STARTS}; {WAITS}"
)


def test_a_process_ends_with_its_parent_however_that_ended():
    with starter() as start:
        command = f"[sys.executable, '-c', {CHILD!r}]"
        parent, line = start(f"import subprocess, sys; subprocess.run({command})")
        started = int(line)
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        assert ends(child.pid)
        assert ends(started)


# A second and more in which no other thread of the process gets its turn.
GREEDY = "held = bytearray(b'x') * 300_000_000; sum(held); sum(held); end.note(0)"


def test_a_process_that_takes_too_much_memory_ends_whatever_it_does(program):
    arguments = program(GREEDY)
    limited = (
        "from conformance.core import memory_limit\n"
        "memory_limit.limit_of_command = lambda words: 200_000_000\n"
    )
    arguments[-1] = limited + arguments[-1]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 134, done
    assert "conformance: `it` takes more than 0.2 GB of memory, and is ended\n" in done.stderr
    assert "crashed before its work was done (signal SIGABRT)" in done.stderr
