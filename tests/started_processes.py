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
