"""The packages of ``engines/``: what can be said of them where their engines are not installed."""

import ast
import importlib
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from conformance.checks.expectations import load_expectations
from conformance.core.engine import Capability, Engine
from conformance.core.family import Family
from conformance.run import hookspecs

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("engines/*/pyproject.toml"))

each = pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)


def project(package):
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))


def plugin(package, monkeypatch):
    """The plugin module, which imports nothing of its engine by itself."""
    monkeypatch.syspath_prepend(str(package))
    (module,) = project(package)["project"]["entry-points"][hookspecs.PROJECT].values()
    return importlib.import_module(module)


def given(plugin, hook):
    function = getattr(plugin, hook, None)
    return list(function()) if function else []


def test_there_are_packages():
    assert [path.name for path in PACKAGES] == ["mlx_openai_server", "rapid_mlx", "vllm_mlx"]


@each
def test_its_hooks_are_ours(package, monkeypatch):
    marked = {
        name
        for name, value in vars(plugin(package, monkeypatch)).items()
        if hasattr(value, f"{hookspecs.PROJECT}_impl")
    }
    assert {"conformance_engine_names", "conformance_engines"} <= marked
    assert marked <= set(vars(hookspecs))


@each
def test_its_adapters_have_all_methods_and_declare_what_there_is(package, monkeypatch):
    names = set(given(plugin(package, monkeypatch), "conformance_engine_names"))
    found = set()
    for path in package.glob("conformance_*/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "Capability":
                assert node.attr in Capability.__members__, f"{path}:{node.lineno}"
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            found |= {value for key, value in assigned(node) if key == "name"}
            if any(getattr(base, "id", "") == "Engine" for base in node.bases):
                methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                assert methods >= Engine.__abstractmethods__, f"{path}:{node.lineno}"
    assert names <= found


def assigned(node):
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
            yield line.targets[0].id, line.value.value


@each
def test_its_families_can_be_read(package, monkeypatch):
    families = given(plugin(package, monkeypatch), "conformance_families")
    assert all(isinstance(family, Family) for family in families)


@each
def test_its_known_defects_are_right_and_have_scripts(package, monkeypatch):
    folders = given(plugin(package, monkeypatch), "conformance_expectations")
    own = {entry.id for entry in load_expectations().defects}
    found = [e for e in load_expectations(None, folders).defects if e.id not in own]
    names = set(given(plugin(package, monkeypatch), "conformance_engine_names"))
    for entry in found:
        assert set(entry.engines) <= names, entry.id
        assert (package / entry.script).is_file(), entry.id
    assert bool(found) == bool(folders)


@each
def test_what_it_pins_is_what_it_asks_for(package):
    (engine,) = project(package)["project"]["dependencies"]
    assert engine in (package / "engine.txt").read_text(encoding="utf-8").splitlines()


@each
def test_the_page_names_every_script(package):
    page = (ROOT / "docs" / "third-party-engines.md").read_text(encoding="utf-8")
    scripts = {p.stem for p in (package / "scripts").glob("*.py") if not p.name.startswith("tiny_")}
    assert scripts
    assert {name for name in scripts if f"`{name}`" not in page} == set()


def test_a_package_that_cannot_be_installed_is_one_sentence(tmp_path):
    """A Python that is none stands for a registry that has not what is asked for."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no matching distribution >&2\nexit 1\n")
    python.chmod(0o755)
    done = script("vllm_mlx", PYTHON=str(python), ENGINES_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "ci/engines.sh: vllm_mlx can't be installed here: no matching distribution\n"
    )


def test_a_package_that_is_not_there_is_a_mistake():
    done = script("nothing")
    assert (done.returncode, done.stderr) == (
        2,
        "ci/engines.sh: there is no package engines/nothing\n",
    )


def script(*arguments, **variables):
    return subprocess.run(
        ["bash", str(ROOT / "ci" / "engines.sh"), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
