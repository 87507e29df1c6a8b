"""Each process compiles kernels in a folder of its own; only whole ones are joined."""

import os
import subprocess
import sys
import tempfile

import pytest

from conformance.core.kernel_caches import OwnKernels
from conformance.reference.surroundings import process_facts


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """The folders that all processes share: of kernels for CPUs, and of PTX."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MLX_PTX_CACHE_DIR", str(tmp_path / "given"))
    return tmp_path / "mlx", tmp_path / "given"


def compiled(folder, name, text="whole", *, whole=True):
    """A kernel as mlx writes it, or as far as it has come."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ptx").write_text(text)
    (folder / f"{name}.txt").write_text("name\tmangled\n" if whole else "")


def kernels(folder):
    return {path.stem for path in folder.rglob("*.ptx")}


def test_what_one_process_compiles_no_other_sees_until_it_is_whole(shared, tmp_path):
    _, given = shared
    compiled(given, "old")
    one, other = OwnKernels(tmp_path / "one"), OwnKernels(tmp_path / "other")
    first, second = tmp_path / "one" / "ptx", tmp_path / "other" / "ptx"
    assert (os.environ["TMPDIR"], os.environ["MLX_PTX_CACHE_DIR"]) == (
        str(tmp_path / "other"),
        str(second),
    )
    assert kernels(first) == {"old"}
    compiled(first, "new")
    compiled(first, "half", whole=False)
    assert "new" not in kernels(given) | kernels(second)
    one.join()
    other.join()
    assert kernels(given) == {"old", "new"}
    assert (given / "new.txt").read_text() == "name\tmangled\n"
    assert kernels(second) <= {"old"}


def test_what_one_process_has_compiled_the_others_get_between_cases(shared, tmp_path):
    one, other = OwnKernels(tmp_path / "one"), OwnKernels(tmp_path / "other")
    compiled(tmp_path / "one" / "ptx", "new")
    compiled(tmp_path / "one" / "ptx", "half", whole=False)
    compiled(tmp_path / "other" / "ptx" / "deep", "other")
    one.exchange()
    other.exchange()
    one.exchange()
    for folder in (tmp_path / "one" / "ptx", tmp_path / "other" / "ptx"):
        assert kernels(folder) - {"half"} == {"new", "other"}
    assert kernels(tmp_path / "other") == {"new", "other"}


def test_half_written_kernels_are_not_taken_over(shared, tmp_path):
    cpu, given = shared
    compiled(given, "half", whole=False)
    (cpu / "1").mkdir(parents=True)
    (cpu / "1" / "libempty.so").touch()
    (cpu / "1" / "libwhole.so").write_text("code")
    OwnKernels(tmp_path / "own")
    assert kernels(tmp_path / "own") == set()
    assert [path.name for path in (tmp_path / "own" / "mlx" / "1").iterdir()] == ["libwhole.so"]


def test_a_broken_kernel_is_replaced_once_it_was_noticed(shared, tmp_path):
    _, given = shared
    compiled(given, "one", "broken")
    own = OwnKernels(tmp_path / "own")
    own.join()
    assert (given / "one.ptx").read_text() == "broken"
    own.renew()
    assert kernels(tmp_path / "own") == set()
    compiled(tmp_path / "own" / "ptx", "one")
    own.join()
    assert (given / "one.ptx").read_text() == "whole"


COMPILES = """
import sys
from pathlib import Path
from conformance.core.kernel_caches import OwnKernels
from conformance.reference.surroundings import process_facts
own = OwnKernels(Path(sys.argv[1]))
import mlx.core as mx
mx.set_default_device(mx.cpu)
mx.eval(mx.compile(lambda x: mx.exp(x) * mx.sin(x) + 3)(mx.ones(5)))
own.join()
"""


def test_mlx_compiles_where_it_is_sent(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    own = tmp_path / "own"
    environment = {**os.environ, "TMPDIR": str(shared)}
    command = [sys.executable, "-c", COMPILES, str(own)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    (there,) = [path.relative_to(own) for path in own.rglob("*.so")]
    assert (shared / there).read_bytes() == (own / there).read_bytes()


def test_the_folder_is_on_no_key_of_stored_results(tmp_path, monkeypatch):
    before = list(process_facts())
    monkeypatch.setenv("MLX_PTX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert list(process_facts()) == before
    monkeypatch.setenv("MLX_ENABLE_TF32", "of another run")
    assert list(process_facts()) != before
