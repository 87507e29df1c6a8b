"""Oracles of tiny families are kept from run to run; ``--no-oracle-cache``."""

import json

import pytest

CASE = ("--engine", "mlx_lm", "--family", "llama", "--scenario", "ragged", "--jobs", "1")


@pytest.fixture
def run(conformance, tmp_path):
    """``conformance run`` on a real family with the installed plugins and a cache of its own."""

    def call(*arguments):
        options = ("--json", "r.jsonl", *arguments)
        more = {"PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return conformance("run", *CASE, *options, **more)

    return call


def results(done):
    """All that a result says but how long it took."""
    text = json.dumps(done.results())
    drop = {"seconds", "forward_seconds"}
    return json.loads(text, object_hook=lambda d: {k: v for k, v in d.items() if k not in drop})


def test_a_run_after_another_gives_the_same_and_so_does_one_without_a_cache(run, tmp_path):
    first = run()
    (file,) = (tmp_path / "cache" / "mlx-conformance" / "families").iterdir()
    assert file.name == "mlx_lm-llama-float32-0.oracle"
    written = file.stat().st_ino
    second = run()
    assert file.stat().st_ino == written, "it was written although nothing was new"
    assert results(first) == results(second) == results(run("--no-oracle-cache"))
    assert first.code == second.code == 0


def test_a_damaged_file_is_reported_and_made_again(run, tmp_path):
    folder = tmp_path / "cache" / "mlx-conformance" / "families"
    folder.mkdir(parents=True)
    file = folder / "mlx_lm-llama-float32-0.oracle"
    file.write_bytes(b"PK")
    done = run()
    assert done.code == 0
    assert f"conformance: {file}: the cached oracle is damaged" in done.err
    assert run().err == ""


def test_without_it_nothing_is_kept(run, tmp_path):
    assert run("--no-oracle-cache").code == 0
    assert not (tmp_path / "cache" / "mlx-conformance" / "families").exists()
