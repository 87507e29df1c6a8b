"""What the machine lacks (disk, rights, letters, a folder to itself) ends in one sentence."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from conformance.core.run_header import RunHeader
from conformance.core.verdict import encode
from conformance.report.jsonl import ResultFile

FAMILY = '{"vocab_size": 16, "conformance": {"library": "toy"}}'
LIMITED = (
    "import resource, sys; size = int(sys.argv.pop(1)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); "
    "from conformance.app.cli import main; main()"
)


@pytest.fixture
def full_disk(start):
    """The command, where no file can be larger than so many bytes."""

    def run(size, *arguments, **variables):
        return start("-c", LIMITED, size, *arguments, **variables)

    return run


@pytest.fixture
def read_only(tmp_path):
    """A folder in which nothing can be written, by root neither."""
    folder = tmp_path / "read only"
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    command = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        done = 1
    if done:
        pytest.skip("root may write everywhere here, and may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_was_found(full_disk, jobs):
    options = ("--engine", "toy", "--family", "calm", "--jobs", jobs, "--json", "r.jsonl")
    done = full_disk(1200, "run", *options, TOY_SECONDS="0.3")
    assert done.code == 2, done
    text = "r.jsonl: cannot write results there: File too large; r.jsonl.partial has those before"
    assert text in done.out + done.err
    assert "Traceback" not in done.out + done.err
    kept = done.verdicts("r.jsonl.partial")
    assert 0 < len(kept) < 3
    assert not (done.folder / "r.jsonl").exists()


def test_a_model_that_finds_no_room_is_not_judged(full_disk):
    done = full_disk(900, "show", "mlx_lm/llama/repeat/float32/0", PYTHONPATH="")
    assert done.code == 2, done
    assert done.err.count("\n") == 1
    assert "[write] Unable to write" in done.err
    assert "Is the disk full? TMPDIR names another folder" in done.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")  # noqa: PTH110
def test_output_that_nobody_takes_is_reported(environment, tmp_path):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "conformance", "show", "families"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "conformance: standard output: No space left on device\n"


def test_a_folder_that_cannot_be_written_is_reported_before_the_run(toy_run, read_only, tmp_path):
    log = str(tmp_path / "log")
    done = toy_run("--json", read_only / "r.jsonl", "--family", "calm", TOY_LOG=log)
    assert done.code == 2
    assert done.err == f"conformance: --json: nothing can be written into the folder {read_only}\n"
    done = toy_run("--report", read_only / "report", "--family", "calm", TOY_LOG=log)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "is read-only" in done.err
    assert not (tmp_path / "log").exists()


ASCII = (
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.mark.parametrize("variables", ASCII, ids=["ascii", "C"])
def test_a_terminal_without_letters_gets_something_else(toy_run, variables, tmp_path):
    (tmp_path / "silent.json").write_text(FAMILY)
    (tmp_path / "Prüfung").mkdir()
    (tmp_path / "silent.json").rename(tmp_path / "Prüfung" / "silent.json")
    options = ("--family", "silent", "--family-file", "Prüfung/silent.json", "--report", "Blätter")
    done = toy_run(*options, **variables)
    assert done.code == 1, done
    assert "Traceback" not in done.out + done.err
    assert re.search(r"rerun: .*/Pr(\\xfc|\\udcc3\\udcbc)fung/silent.json", done.out), done
    assert (done.folder / "Blätter" / "index.html").is_file()


def test_spaces_and_letters_in_paths_are_kept(conformance, tmp_path):
    folder = tmp_path / "a b" / "Modèle 模型"
    folder.mkdir(parents=True)
    (folder / "silent.json").write_text(FAMILY)
    paths = ("--json", folder / "r é.jsonl", "--report", folder / "my report")
    options = ("--engine", "toy", "--family", "silent", "--jobs", "2")
    done = conformance("run", *options, "--family-file", folder / "silent.json", *paths)
    assert done.code == 1, done
    assert len((folder / "r é.jsonl").read_text().splitlines()) == 4
    assert (folder / "my report" / "index.html").is_file()
    rerun, *_ = (line for line in done.out.splitlines() if "rerun:" in line)
    words = shlex.split(rerun.partition("rerun:")[2])
    assert words[:2] == ["conformance", "show"]
    again = conformance(*words[1:])
    assert again.code == 1, again
    assert "drift: toy/silent/ragged/float32/0" in again.out


def test_two_runs_do_not_write_one_file(toy_run, tmp_path):
    options = ("--family", "calm", "--json", "r.jsonl", "--report", "report")
    other = ResultFile(tmp_path / "r.jsonl")
    other.add(RunHeader(2))
    done = toy_run(*options)
    assert done.code == 2, done
    text = "r.jsonl: another run is writing its results there; wait until it ends, or choose"
    assert text in done.out + done.err
    assert "Traceback" not in done.out + done.err
    other.finish([RunHeader(1)])
    written = (tmp_path / "r.jsonl").read_text()
    assert written == f"{encode(RunHeader(1))}\n", "it was not disturbed"
    assert toy_run(*options).code == 0, "nothing is left in the way"
    assert len(done.results()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.jsonl", "report"]


def test_two_runs_may_write_one_report(environment, tmp_path):
    """It is then of one of them, and whole."""
    command = [sys.executable, "-m", "conformance", "run", "--engine", "toy", "--jobs", "1"]
    runs = [
        subprocess.Popen(
            [*command, "--family", name, "--report", "report"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("calm", "tied")
    ]
    outputs = [run.communicate(timeout=60) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert json.loads((tmp_path / "report" / "report.json").read_text())["cases"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
