"""Models that harm their process (``toy/wild_plugin.py``), between others that do not.

They crash, hang, fill memory, leak threads or lose the device.

Each costs its own case with workers. In one process it may cost the run: what can be kept is.
"""

import time
from pathlib import Path

import pytest

WILD = {"TOY_PLUGIN": "wild_plugin"}
SECONDS = 30


def found(done, family):
    """Verdict and first finding of the case in which the model is wild; the others are exact."""
    results = {r["scenario"]: r for r in done.results() if r["family"] == family}
    assert {name: r["verdict"] for name, r in results.items() if name != "wild"} == {
        "before": "exact",
        "after": "exact",
    }, done
    return results["wild"]["verdict"], results["wild"]["evidence"][0]


def test_run_goes_on_after_each(conformance):
    done = conformance(
        *("run", "--engine", "toy", "--jobs", "2", "--memory", "0.5", "--json", "r.jsonl"),
        *("--timeout", "10"),
        **WILD,
        TOY_FAMILIES="aborts grows leaves loops vanishes",
    )
    assert done.code == 1, done
    verdict, finding = found(done, "aborts")
    assert (verdict, finding["check"]) == ("crash", "process")
    assert finding["got"].startswith("signal SIGABRT: Aborted in tests/toy/wild_plugin.py:")
    assert finding["got"].endswith(", aborts")
    verdict, finding = found(done, "grows")
    assert (verdict, finding["check"]) == ("crash", "memory")
    assert finding["expected"] == "at most 0.5 GB"
    assert "(Aborted in tests/toy/wild_plugin.py:" in finding["got"]
    verdict, finding = found(done, "leaves")
    assert (verdict, finding["check"]) == ("leak", "threads")
    assert finding["got"].startswith("forgotten in ")
    verdict, finding = found(done, "vanishes")
    assert (verdict, finding["got"]) == ("crash", "signal SIGKILL")
    assert "memory ran out" in finding["cause"]
    verdict, finding = found(done, "loops")
    assert verdict == "hang"
    assert "(in tests/toy/wild_plugin.py:" in finding["got"]
    assert done.out.count("wild/float32/0\n  what:") == 5, "each is reported in full"


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.nightly), "2"])
def test_a_lost_device_costs_only_the_case_that_lost_it(conformance, jobs, tmp_path):
    done = conformance(
        *("run", "--engine", "toy", "--jobs", jobs, "--json", "r.jsonl"),
        **WILD,
        TOY_FAMILIES="loses keeps poisons holds stays",
        TOY_LOG=str(tmp_path / "log"),
    )
    verdict, finding = found(done, "loses")
    assert (verdict, finding["check"]) == ("crash", "failure")
    assert "illegal memory access" in finding["got"]
    verdict, finding = found(done, "poisons")
    assert verdict == "crash"
    assert "illegal memory access" in finding["got"]
    kept = {name: v for name, v in done.verdicts().items() if name[0] in "khs"}
    assert set(kept.values()) == {"exact"}, "the families of innocent cases"
    assert len(kept) == 9
    if jobs == "2":
        assert_replaced((tmp_path / "log").read_text().splitlines())


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_what_a_device_refuses_is_tried_alone(conformance, jobs, tmp_path):
    done = conformance(
        *("run", "--engine", "toy", "--jobs", jobs, "--json", "r.jsonl"),
        **WILD,
        TOY_FAMILIES="misses refuses fills keeps",
        TOY_LOG=str(tmp_path / "log"),
    )
    verdicts = done.verdicts()
    assert verdicts.pop("refuses/wild") == "crash", "it is refused alone, too"
    assert set(verdicts.values()) == {"exact"}
    assert "There is no kernel named" in found(done, "refuses")[1]["got"]
    _, _, said = done.out.partition("a problem of this machine: ")
    for family in ("misses", "fills"):
        assert found(done, family)[1]["check"] == "machine"
        assert f"toy/{family}/wild/float32/0" in said
    assert "1 of 12 cases not as expected" in done.out


def test_workers_compile_each_in_its_own_folder_and_leave_their_kernels(conformance, tmp_path):
    shared = tmp_path / "ptx"
    shared.mkdir()
    done = conformance(
        *("run", "--engine", "toy", "--jobs", "2", "--json", "r.jsonl"),
        **WILD,
        TOY_FAMILIES="keeps holds",
        TOY_KERNELS="1",
        MLX_PTX_CACHE_DIR=str(shared),
    )
    assert done.code == 0, done
    made = {path.stem: Path(path.read_text().strip()) for path in shared.glob("*.ptx")}
    assert len(made) == len(set(made.values())) == 2, "one for each worker"
    assert shared not in made.values()
    assert not any(folder.exists() for folder in made.values()), "they are removed"


def assert_replaced(log):
    """No process plays anything after the case with which it lost its device."""
    plays = [line.split()[:2] for line in log]
    for lost in ("loses/wild", "poisons/wild"):
        tried = list(dict.fromkeys(pid for case, pid in plays if case == lost))
        assert len(tried) >= 2, "once more in a process of its own"
        for pid in tried:
            assert [case for case, one in plays if one == pid][-1] == lost


def test_another_distribution_keeps_the_verdict_of_a_worker_that_retired(suite):
    options = ("-n", "1", "--dist", "load", "--conformance-json", "r.jsonl")
    done = suite(*options, **WILD, TOY_FAMILIES="leaves")
    assert found(done, "leaves")[0] == "leak"


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("aborts", "Fatal Python error: Aborted"),
        ("freezes", "Timeout (0:00:03)!"),
        ("grows", "conformance: toy/grows/wild/float32/0: takes more than 0.5 GB of memory"),
    ],
)
def test_in_one_process_what_came_before_is_kept(conformance, family, message):
    options = ("--timeout", "2") if family == "freezes" else ("--memory", "0.5")
    done = conformance(
        *("run", "--engine", "toy", "--jobs", "1", "--json", "r.jsonl", *options),
        **WILD,
        TOY_FAMILIES=family,
    )
    assert done.code not in (0, 2), done
    assert message in done.err
    assert 'wild_plugin.py", line' in done.err, "where it was"
    assert done.verdicts("r.jsonl.partial") == {f"{family}/before": "exact"}


def test_in_one_process_leaked_threads_do_not_delay_its_end(conformance):
    start = time.monotonic()
    done = conformance(
        *("run", "--engine", "toy", "--jobs", "1", "--json", "r.jsonl"),
        **WILD,
        TOY_FAMILIES="leaves",
    )
    assert found(done, "leaves")[0] == "leak"
    assert done.code == 1
    assert time.monotonic() - start < SECONDS, "the thread sleeps as long"


def test_workers_that_crash_as_they_start_are_not_tried_for_ever(suite, environment, tmp_path):
    (tmp_path / "stillborn.py").write_text(
        "import os\nfrom wild_plugin import *\n"
        "if 'PYTEST_XDIST_WORKER' in os.environ:\n    os.abort()\n"
    )
    path = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = suite("-n", "1", TOY_PLUGIN="stillborn", PYTHONPATH=path)
    assert done.code == 2, done
    assert "workers crash before they have run anything (signal SIGABRT: Aborted in " in done.out
