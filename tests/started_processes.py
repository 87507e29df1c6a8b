"""Processes that a test starts, and whether they end."""

import contextlib
import subprocess
import sys
import time

import psutil

STARTS = "import subprocess; print(subprocess.Popen(['sleep', '30']).pid)"
WAITS = "print(flush=True); import time; time.sleep(30)"


@contextlib.contextmanager
def starter():
    """Gives a function that starts a process which runs some code and then sleeps.

    It returns the process, and the line that it prints first. At the end all are killed.
    """
    made = []

    def call(code="pass"):
        command = [sys.executable, "-c", f"{code}; {WAITS}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        made.append(process)
        return process, process.stdout.readline()

    try:
        yield call
    finally:
        for process in made:
            process.kill()
            process.wait()
            process.stdout.close()


def ends(pid, seconds=20):
    """Whether a process of another parent ends within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def marked(mark):
    """Processes whose command has that mark."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if any(f"mark {mark}" in w for w in p.info["cmdline"] or ())]


def gone(mark, seconds=60):
    """Whether no process with that mark is left after a while."""
    until = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not marked(mark)
