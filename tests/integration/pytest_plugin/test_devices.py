"""GPUs for workers. There are none here: what each worker would see is looked at."""

import os

import pytest

WILD = {"TOY_PLUGIN": "wild_plugin", "TOY_GPU": "yes", "CUDA_VISIBLE_DEVICES": "3,5,7"}


@pytest.fixture
def with_cuda(environment, tmp_path_factory):
    """A folder in which mlx's CUDA build seems to be installed."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "mlx_cuda_13-0.32.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-cuda-13\nVersion: 0.32.4\n")
    return {"PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{folder}"}


def seen(path):
    """For each process of the log the GPUs that it saw."""
    found = {}
    for line in path.read_text().splitlines():
        _, pid, device = line.split()
        found.setdefault(pid, set()).add(device)
    assert all(len(devices) == 1 for devices in found.values())
    return sorted(device for devices in found.values() for device in devices)


def test_workers_take_the_chosen_gpus_in_turn(conformance, with_cuda, tmp_path):
    log = tmp_path / "log"
    done = conformance(
        *("run", "--engine", "toy", "--jobs", "3", "--json", "r.jsonl", "--devices", "5,7"),
        **(WILD | with_cuda),
        TOY_FAMILIES="a b c",
        TOY_LOG=str(log),
    )
    assert done.code == 0, done
    assert seen(log) == ["5", "5", "7"]
    assert done.header()["devices"] == ["5", "7"]


def test_a_process_that_replaces_a_worker_takes_its_gpu(suite, with_cuda, tmp_path):
    log = tmp_path / "log"
    done = suite(
        *("-n", "1", "--conformance-json", "r.jsonl", "--conformance-devices", "7,"),
        **(WILD | with_cuda),
        TOY_FAMILIES="aborts",
        TOY_LOG=str(log),
    )
    assert done.code == 1, done
    assert done.verdicts()["aborts/after"] == "exact"
    assert "workers take in turn device 7" in done.out
    assert seen(log) == ["7", "7"]


def test_one_process_sees_what_was_chosen(conformance, with_cuda, tmp_path):
    log = tmp_path / "log"
    options = ("run", "--engine", "toy", "--jobs", "1", "--json", "r.jsonl", "--devices=7,")
    done = conformance(*options, **(WILD | with_cuda), TOY_FAMILIES="a", TOY_LOG=str(log))
    assert done.code == 0, done
    assert seen(log) == ["7"]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("5,9", "--devices: there is no device '9' here, only 3, 5, 7"),
        ("4", "--devices: 4 devices are wanted, and there are 3 here"),
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(conformance, with_cuda, option, sentence):
    done = conformance("run", "--engine", "toy", "--devices", option, **(WILD | with_cuda))
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_without_cuda_in_mlx_there_is_one_sentence_too(conformance, suite):
    for run, option in ((conformance, "--devices"), (suite, "--conformance-devices")):
        words = ("run", "--engine", "toy") if run is conformance else ()
        done = run(*words, option, "1", **WILD)
        assert done.code in (2, 4), done
        assert "no CUDA build of mlx is installed here" in done.err


def test_a_cpus_library_over_that_of_cuda_is_found_out(conformance, with_cuda):
    without = {name: value for name, value in WILD.items() if name != "TOY_GPU"}
    options = ("run", "--engine", "toy", "--devices", "all", "--jobs", "2")
    done = conformance(*options, **(without | with_cuda), TOY_FAMILIES="a b")
    assert done.code == 2, done
    assert "mlx computes on the CPU here" in done.out + done.err


def test_a_cluster_has_its_own(conformance, with_cuda):
    options = ("run", "--engine", "toy", "--devices", "1", "--cluster", "tcp://127.0.0.1:1")
    done = conformance(*options, **(WILD | with_cuda), TOY_FAMILIES="a")
    assert done.code == 2
    assert "--cluster: workers do not have what --devices names" in done.err
