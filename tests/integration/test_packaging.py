"""Wheel and source distribution: built and installed without git, whole, and as they claim."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import conformance

ROOT = Path(__file__).parents[2]
LIST = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
WITHOUT_GIT = {**os.environ, "PATH": "", "PYTHONPATH": ""}

# From Python 3.11.4 on.
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def listed(folder="."):
    """The paths that a clone has, or will have once all is committed."""
    command = [*LIST, "--", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()
    return [n for n in names if (ROOT / n).is_symlink() or (ROOT / n).is_file()]


def tracked(folder="."):
    """The same with what is behind symbolic links in place of these."""
    found = set()
    for name in listed(folder):
        path = ROOT / name
        if path.is_symlink():
            target = path.resolve().relative_to(ROOT)
            found |= {f"{name}/{Path(f).relative_to(target)}" for f in listed(str(target))}
        else:
            found.add(name)
    return found


def build(what, tree, target):
    """One of the files that setuptools makes of a tree, in a process that finds no git."""
    target.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, what, str(target)],
        cwd=tree,
        env=WITHOUT_GIT,
        capture_output=True,
        check=True,
    )
    (made,) = target.iterdir()
    return made


def contents(wheel):
    """The files of a wheel but for its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Source distribution, and the wheel made of it alone."""
    folder = tmp_path_factory.mktemp("with a blank")
    tree = folder / "tree"
    for name in listed():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            path.symlink_to((ROOT / name).readlink())
        else:
            shutil.copy(ROOT / name, path)
    sdist = build("build_sdist", tree, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", **SAFELY)
    (unpacked,) = (folder / "unpacked").iterdir()
    return sdist, build("build_wheel", unpacked, folder / "wheel")


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The folder of an environment with the wheel; what it needs is lent by this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False)
    install = ["install", "--quiet", "--no-deps", "--no-index", str(built[1])]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), *install],
        env={**WITHOUT_GIT, "PIP_NO_INPUT": "1"},
        check=True,
    )
    (site,) = folder.glob("lib/python*/site-packages")
    # Lent packages come after the installed ones, and their own .pth files are not read.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def call(folder, *command):
    """What a command of the environment prints; it must end with 0."""
    done = subprocess.run(
        [str(folder / "bin" / command[0]), *command[1:]],
        cwd=folder,
        env={**WITHOUT_GIT, "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    documents = {name for name in tracked("conformance") if name.endswith("README.md")}
    assert contents(built[1]) == tracked("conformance") - documents


def test_the_source_distribution_has_every_file_of_the_project(built):
    with tarfile.open(built[0]) as archive:
        found = {m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir()}
    not_for_users = {".gitignore", ".ci/run"}
    behind_links = {
        "conformance/checks/expectations/known/README.md",
        "conformance/tools/explore/corpus/README.md",
    }
    assert tracked() - not_for_users - behind_links - found == set()


def test_its_metadata_is_what_the_project_says_of_itself(built):
    archive = zipfile.ZipFile(built[1])
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    found = Parser().parsestr(archive.read(name).decode())
    assert found["Version"] == conformance.__version__
    assert found["License-Expression"] == "MIT"
    assert found["Requires-Python"] == ">=3.11"
    assert set(found.get_all("Provides-Extra")) >= {"transformers", "cuda", "docs", "dev"}
    license_text = archive.read(name.replace("METADATA", "licenses/LICENSE")).decode()
    assert license_text.startswith("MIT License")


def test_what_is_installed_finds_its_data_and_itself_as_command_and_as_module(installed):
    code = "import conformance, importlib.resources as r; p = r.files('conformance'); "
    code += "print(p); assert (p / 'py.typed').is_file()"
    assert call(installed, "python", "-c", code).startswith(str(installed))
    version = f"conformance, version {conformance.__version__}\n"
    assert call(installed, "conformance", "--version") == version
    assert call(installed, "python", "-m", "conformance", "--version") == version
    assert "mlx_vlm" in call(installed, "conformance", "show", "engines")


def test_what_is_installed_has_the_known_defects_and_their_words(installed):
    shown = call(installed, "conformance", "show", "defects", "mamba-padded-state")
    assert "  where:      mlx_lm/models/mamba.py:" in shown
    assert "  suffers:    mamba answers a prompt differently when" in shown


def test_what_is_installed_runs_a_case(installed):
    options = ("--family", "llama", "--engine", "mlx_lm", "--scenario", "identical", "--jobs", "1")
    assert "OK: 1 case, all as expected" in call(installed, "conformance", "run", *options)
