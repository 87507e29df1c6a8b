"""Ctrl-C: what was found stays readable, by every command that reads results."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

TOY = Path(__file__).parents[1] / "toy"
ENDED_SECONDS = 5
RUN = ("-m", "conformance", "run", "--engine", "toy", "--jobs", "2", "--json", "r.jsonl")


def test_workers_leave_a_file_that_all_commands_read(environment, conformance, tmp_path):
    process = subprocess.Popen(
        [sys.executable, *RUN],
        cwd=tmp_path,
        env={**environment, "TOY_FAMILIES": "calm broken tied", "TOY_SECONDS": "0.7"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    partial = tmp_path / "r.jsonl.partial"
    until = time.monotonic() + 60
    while not (partial.exists() and b"/ragged/" in partial.read_bytes()):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers too
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2, out
    assert not (tmp_path / "r.jsonl").exists()
    lines = partial.read_text().splitlines()
    assert 1 < len(lines) < 10, "a header, and not all of the nine cases"
    case = next(line for line in lines if "/ragged/" in line).split('"')[3]
    show = conformance("show", case, "--from", partial)
    assert show.out.startswith(("exact", "tie", "diverged")), show
    diff = conformance("diff", partial, partial)
    assert diff.code == 1, diff
    assert diff.out.startswith(f"{partial} is incomplete: "), diff
    report = conformance("report", partial, "--html", "report")
    assert report.code == 1, report
    assert " not run" in (tmp_path / "report" / "index.html").read_text()
    assert (tmp_path / "report" / "index.html").is_file()


def test_workers_in_the_midst_of_a_case_do_not_delay_the_end(environment, tmp_path):
    process = subprocess.Popen(
        [sys.executable, *RUN],
        cwd=tmp_path,
        env={**environment, "TOY_FAMILIES": "stuck frozen"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    partial = tmp_path / "r.jsonl.partial"
    until = time.monotonic() + 60
    while not (partial.exists() and partial.read_bytes().count(b"/repeat/") == 2):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)  # both workers sleep in their next case
    start = time.monotonic()
    out, _ = process.communicate(timeout=60)
    assert time.monotonic() - start < ENDED_SECONDS, out
    assert process.returncode == 2, out
    last = out.splitlines()[-1]
    assert re.fullmatch(r"interrupted: 2 of \d+ run, in \S+ s", last), "it reports what it found"
    assert not re.search("pytest|KeyboardInterrupt|collected|=====", out), out


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_two_signals_at_once_leave_the_old_file_and_no_process(environment, tmp_path, number):
    """``python ci/interruptions.py`` does it 200 times, at random moments."""
    (tmp_path / "r.jsonl").write_text("old\n")
    mark = {"INTERRUPTED_RUN": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, *RUN],
        cwd=tmp_path,
        env={**environment, **mark, "TOY_FAMILIES": "calm broken tied", "TOY_SECONDS": "0.7"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "r.jsonl.partial"
    until = time.monotonic() + 60
    while not (partial.exists() and partial.read_bytes().count(b"\n") > 1):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert (tmp_path / "r.jsonl").read_text() == "old\n"
    assert out.splitlines()[-1].startswith("interrupted: "), "it reports what it found"
    assert "Traceback" not in err
    assert not [p for p in psutil.process_iter(["environ"]) if _is_of(p, mark)]


def _is_of(process, mark):
    return mark.items() <= (process.info["environ"] or {}).items()


SLOW_WORKERS = """
import os, sys, time
if "stdin.readline" in "".join(sys.orig_argv):  # a worker
    time.sleep(0.2)
    os._exit(7)
exec(open({toy!r}).read())
"""


@pytest.mark.parametrize("signals", [True, False])
def test_workers_that_end_before_they_begin_are_no_traceback(environment, tmp_path, signals):
    """As by SIGTERM to the group of the run, in the moment in which they start."""
    place, toy = tmp_path / "site", TOY / "sitecustomize.py"
    place.mkdir()
    (place / "sitecustomize.py").write_text(SLOW_WORKERS.format(toy=str(toy)))
    (tmp_path / "r.jsonl").write_text("old\n")
    paths = os.pathsep.join((str(place), environment["PYTHONPATH"]))
    process = subprocess.Popen(
        [sys.executable, *RUN],
        cwd=tmp_path,
        env={**environment, "TOY_FAMILIES": "calm broken", "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if signals:
        until = time.monotonic() + 60
        while not psutil.Process(process.pid).children():
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, (out, err)
    assert "Traceback" not in out + err, (out, err)
    assert (tmp_path / "r.jsonl").read_text() == "old\n"
    assert signals or "a worker ended before it could begin" in out + err, (out, err)
