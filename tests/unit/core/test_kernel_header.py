"""The header of mlx's kernels is compiled once, where g++ finds it."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from conformance.core import kernel_header
from conformance.core.kernel_header import compile_header

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="mlx calls g++ on Linux alone"
)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """The folder for temporary files, in which mlx keeps its kernels."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def headers_of(source):
    """The headers that g++ reads for a kernel: a mark and a path each."""
    command = ["g++", "-H", "-std=c++17", "-O3", "-Wall", "-fPIC", "-fsyntax-only", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()


def test_kernels_that_mlx_writes_are_compiled_with_it(shared):
    place = compile_header()
    assert compile_header() == place
    source = "import mlx.core as mx; f = mx.compile(lambda x: mx.exp(x) * mx.sin(x) + 3)\n"
    source += "mx.set_default_device(mx.cpu); mx.eval(f(mx.ones(5)))"
    subprocess.run([sys.executable, "-c", source], check=True)
    (kernel,) = shared.glob("mlx/*/cpu/*.cpp")
    assert headers_of(kernel)[0] == f"! {place}"  # the mark of a compiled header


def test_one_of_another_compiler_is_replaced(shared, monkeypatch, tmp_path):
    place = compile_header()
    other = tmp_path / "bin" / "g++"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    found = compile_header()
    assert found != place
    assert list(place.parent.iterdir()) == [found]


@pytest.mark.parametrize("script", ["exit 1", "kill $$", None])
def test_without_a_compiler_that_works_nothing_is_left(shared, monkeypatch, script):
    folder = shared / "bin"
    folder.mkdir()
    if script:
        (folder / "g++").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert compile_header() is None
    assert [path for path in (shared / "mlx").rglob("*") if path.is_file()] == []


def test_nothing_is_compiled_where_nothing_can_be_written(shared, monkeypatch):
    (shared / "mlx").write_text("no folder")
    assert compile_header() is None
    monkeypatch.setattr(kernel_header.sys, "platform", "darwin")
    assert compile_header() is None
