"""A case of a known defect that ends processes is played in one of its own: nothing else ends."""

import os
import signal

import pytest

ENTRY = """
package = "toy"

[[defect]]
id = "deadly"
families = ["{family}"]
versions = ">=1,<2"
where = "toy/model.py:1"
why = "it writes out of bounds"
script = "docs/defects/toy.py"
ends_process = {ends}
verdicts = {{ ragged = "{verdict}" }}
"""


@pytest.fixture
def known(tmp_path):
    def write(family="fatal", ends="true", verdict="crash"):
        folder = tmp_path / "known"
        folder.mkdir()
        (folder / "toy.toml").write_text(ENTRY.format(family=family, ends=ends, verdict=verdict))
        return "--family", family, "--expectations", folder, "--json", "r.jsonl"

    return write


def test_the_process_of_the_run_goes_on(toy_run, known, tmp_path):
    log = tmp_path / "log"
    done = toy_run(*known(), TOY_LOG=str(log))
    assert done.code == 0, done
    assert set(done.verdicts().items()) == {
        ("fatal/repeat", "exact"),
        ("fatal/ragged", "crash"),
        ("fatal/staggered", "exact"),
    }
    (crash,) = [r for r in done.results() if r["verdict"] == "crash"]
    assert (crash["expected"], crash["known"]) == (True, "deadly")
    got = crash["evidence"][0]["got"]
    assert got.startswith("signal SIGSEGV: Segmentation fault in tests/toy/toy_plugin.py:")
    played = dict(reversed(line.split()) for line in log.read_text().splitlines())
    assert len(set(played.values())) == 2
    assert played["toy/fatal/repeat/float32/0"] == played["toy/fatal/staggered/float32/0"]


def test_by_an_entry_that_does_not_say_so_the_run_ends(toy_run, known):
    assert toy_run(*known(ends="false")).code == 128 + signal.SIGSEGV


def test_what_no_longer_ends_its_process_has_the_verdict_that_it_gives(toy_run, known):
    done = toy_run(*known(family="broken"))
    assert done.code == 1
    assert done.verdicts()["broken/ragged"] == "diverged"
    assert "deadly: wants crash, got diverged" in done.out


def test_one_that_hangs_is_ended_with_its_process(toy_run, known, tmp_path):
    log = tmp_path / "log"
    done = toy_run(*known(family="stuck"), "--timeout", "12", TOY_LOG=str(log))
    assert done.verdicts()["stuck/ragged"] == "hang"
    (line,) = [line for line in log.read_text().splitlines() if "ragged" in line]
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[0]), 0)


@pytest.mark.parametrize(
    ("early", "got", "cause"),
    [
        (
            "it exits early",
            "its own process could not begin: SystemExit: it exits early",
            "a defect of mlx-conformance or of a plugin, not of the engine",
        ),
        (
            "cudaGetLastError() failed: out of memory",
            "the GPU has no memory left (cudaGetLastError() failed: out of memory): run fewer "
            "workers at once (--jobs)",
            "this machine, not the engine: give it what it lacks, and run again",
        ),
    ],
    ids=["exit", "full"],
)
def test_a_process_that_cannot_begin_is_no_failure_of_the_engine(toy_run, known, early, got, cause):
    done = toy_run(*known(), TOY_EXITS_EARLY=early)
    assert done.code == 1
    (crash,) = [r for r in done.results() if r["verdict"] == "crash"]
    (evidence,) = [e for e in crash["evidence"] if e["check"] == "harness"]
    assert evidence["got"].endswith(got)
    assert evidence["cause"] == cause
