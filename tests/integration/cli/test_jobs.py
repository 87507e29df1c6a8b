"""``--jobs``, and what holds with workers as in one process."""

from collections import defaultdict

import pytest


def processes(path):
    """For each process the families that it ran, from the toy plugin's log."""
    found = defaultdict(set)
    for line in path.read_text().splitlines():
        pid, case = line.split()
        found[pid].add(case.split("/")[1])
    return list(found.values())


OPTIONS = "--jobs 2 --verbose --json r.jsonl"


@pytest.fixture(scope="module")
def done(in_folder, tmp_path_factory):
    """A whole run with two workers, in a folder with a configuration of pytest's of the user."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --nonsense\nconformance_family = nope\npython_files = *.py\n"
    )
    (folder / "conftest.py").write_text("raise RuntimeError('the conftest was loaded')\n")
    return in_folder(folder)(
        *("run", "--engine", "toy", *OPTIONS.split()),
        **{"PYTEST_ADDOPTS": "--nonsense", "PYTEST_PLUGINS": "x", "TOY_MODULES": "novel"},
        **{"TOY_FAMILIES": "broken calm quiet tied", "TOY_SECONDS": "0.05"},
        TOY_LOG=str(folder / "log"),
    )


def test_workers_never_share_a_family(done):
    split = processes(done.folder / "log")
    assert len(split) == 2, "both workers had work"
    assert not split[0] & split[1], "a model and its oracle are made once"


def test_no_setting_of_pytest_s_leaks_in_and_nothing_is_left(done):
    assert done.code == 1, done
    assert done.err == ""
    names = {path.name for path in done.folder.iterdir()}
    assert names == {"pytest.ini", "conftest.py", "log", "r.jsonl"}


def test_a_module_without_a_family_is_found(done):
    assert "reasoned exclusion: novel" in done.out


def test_lines_have_the_order_of_the_selection_and_the_command_of_the_run(done):
    names = [(r["family"], r["scenario"]) for r in done.results()]
    assert names[:3] == [("broken", name) for name in ("repeat", "ragged", "staggered")]
    assert [family for family, _ in names] == sorted(family for family, _ in names)
    (command,) = {result["invocation"]["command"] for result in done.results()}
    assert command.endswith(OPTIONS)


def test_a_verbose_run_shows_each_case(done):
    lines = {line.split("  ")[0] for line in done.out.splitlines() if "/float32/0  0.50 s" in line}
    assert len(lines) == 12, done
    assert {"exact: toy/calm/staggered/float32/0", "diverged: toy/broken/ragged/float32/0"} < lines


def test_one_job_means_this_process(toy_run, tmp_path):
    log = tmp_path / "log"
    toy_run("--family", "calm", "--family", "quiet", "--jobs", "1", TOY_LOG=str(log))
    assert processes(log) == [{"calm", "quiet"}]


def test_a_crash_is_a_verdict_and_the_rest_is_run(toy_run, tmp_path):
    log = tmp_path / "log"
    done = toy_run(
        *("--family", "calm", "--family", "fatal", "--jobs", "auto", "--json", "r.jsonl"),
        TOY_LOG=str(log),
    )
    assert done.code == 1, done
    assert done.verdicts() == {
        "calm/repeat": "exact",
        "calm/ragged": "exact",
        "calm/staggered": "exact",
        "fatal/repeat": "exact",
        "fatal/ragged": "crash",
        "fatal/staggered": "exact",
    }
    crash = next(r for r in done.results() if r["verdict"] == "crash")
    assert "Segmentation fault in tests/toy/toy_plugin.py" in crash["evidence"][0]["got"]
    assert log.read_text().count("toy/fatal/ragged") == 1, "it is not given to the next worker"


@pytest.mark.parametrize("wrong", ["0", "-3", "many"])
def test_a_number_that_makes_no_sense_is_refused(toy_run, wrong):
    done = toy_run("--jobs", wrong)
    assert done.code == 2
    assert "'auto' nor a number" in done.err
