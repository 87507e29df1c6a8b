"""Pages: ``conformance report --html``, and ``run --report``."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest


def about(done, folder="report"):
    return json.loads((done.folder / folder / "report.json").read_text())


def test_a_run_leaves_a_report(toy_run):
    done = toy_run("--family", "broken", "--family", "calm", "--report", "report")
    assert done.code == 1
    assert "report: report/index.html" in done.out
    assert about(done)["cases"] == 6
    pages = [path.name for path in (done.folder / "report" / "cases").iterdir()]
    assert pages
    assert all(name.startswith("toy-broken-") for name in pages)


def test_files_are_put_together(toy_run, conformance):
    toy_run("--family", "broken", "--json", "a.jsonl")
    toy_run("--family", "calm", "--json", "b.jsonl")
    done = conformance(
        "report", "a.jsonl", "b.jsonl", "--before", "a.jsonl", "--html", "a new folder"
    )
    assert done.code == 1, "broken has a verdict that is not expected"
    assert re.fullmatch(r"\d+ pages: a new folder/index\.html\n", done.out)
    assert about(done, "a new folder")["cases"] == 6
    assert (done.folder / "a new folder" / "comparison.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bad.jsonl", "--html", "r"), "bad.jsonl, line 1"),
        (("empty.jsonl", "--html", "r"), "no results in empty.jsonl"),
        (("bad.jsonl", "--html", "none/r"), "no folder"),
        (("bad.jsonl", "--html", "bad.jsonl"), "not a report of this project"),
    ],
)
def test_mistakes_end_in_one_sentence(conformance, tmp_path, arguments, message):
    (tmp_path / "bad.jsonl").write_text("{}\n")
    (tmp_path / "empty.jsonl").write_text("\n")
    done = conformance("report", *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_a_run_says_at_once_that_a_report_cannot_be_written(toy_run):
    done = toy_run("--family", "calm", "--report", "none/report")
    assert done.code == 2
    assert "no folder" in done.err
    assert "calm" not in done.out


def test_an_interrupted_run_leaves_a_report_and_the_old_file_whole(environment, tmp_path):
    command = "from conformance.app.cli import main; main()"
    options = ("--engine", "toy", "--jobs", "1", "--json", "r.jsonl", "--report", "report")
    (tmp_path / "r.jsonl").write_text("old\n")
    process = subprocess.Popen(
        [sys.executable, "-c", command, "run", *options],
        cwd=tmp_path,
        env={**environment, "TOY_SECONDS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    partial = tmp_path / "r.jsonl.partial"
    end = time.monotonic() + 60
    while not (partial.exists() and partial.read_text().count("\n")) and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 2
    found = json.loads((tmp_path / "report" / "report.json").read_text())["cases"]
    assert 0 < found <= partial.read_text().count("\n")
    assert (tmp_path / "r.jsonl").read_text() == "old\n"
