"""A Dask scheduler and two workers on this machine, as a test starts them."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil

PATIENCE = 900.0


def until(found, process):
    """What ``found`` gives as soon as it gives something, while the process runs."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if it := found():
            return it
        time.sleep(0.05)
    raise AssertionError("it did not come")


@contextlib.contextmanager
def cluster_in(folder, **variables):
    """The address of a scheduler, and its two workers' processes.

    Args:
        variables: of the environment of all three.
    """
    folder.mkdir(exist_ok=True)
    file, made = folder / "scheduler.json", []

    def start(*words):
        with (folder / f"{len(made)}.log").open("wb") as log:
            command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
            given = {**os.environ, **variables}
            made.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=given))
        return made[-1]

    def address():
        with contextlib.suppress(OSError, ValueError):
            return json.loads(file.read_text())["address"]

    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0",
                      "--dashboard-address", "127.0.0.1:0")  # fmt: skip
    try:
        where = until(address, scheduler)
        workers = [start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard") for _ in "ab"]
        for number, worker in enumerate(workers, 1):
            log = folder / f"{number}.log"
            until(lambda log=log: "Registered to" in log.read_text(), worker)
        yield where, workers
    finally:
        for process in made:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def at_work(workers, what="conformance.app.cluster.child"):
    """The first worker below which a process with this in its command runs."""
    for worker in workers:
        for child in psutil.Process(worker.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                if what in " ".join(child.cmdline()):
                    return worker
    return None
