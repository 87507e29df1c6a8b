"""``--library-path``: a checkout of a library in place of the installed package."""

import importlib

import click
import pytest
from library_checkouts import make_checkout, plant_mistake

from conformance.app.cli.main import group

CASE = "mlx_lm/llama/ragged/float32/0"
RUN = ("run", "--engine", "mlx_lm", "--family", "llama", "--scenario", "ragged")
# They load no library, or install their own.
WITHOUT = {
    *("diff", "report", "releases", "golden diff", "golden judge"),
    *("audit tiers", "new engine", "known refresh"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A checkout with a mistake that is not committed."""
    folder = make_checkout(tmp_path_factory.mktemp("checkouts") / "mlx-lm")
    plant_mistake(folder)
    return folder


@pytest.fixture
def environment(environment):
    return {k: v for k, v in environment.items() if k != "PYTHONPATH"}


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_run_plays_the_checkout_and_says_so(conformance, broken, jobs):
    where = ("--library-path", str(broken), "--explain-seconds", "0")
    done = conformance(*RUN, "--jobs", jobs, *where, "--json", "r.jsonl", "--report", "pages")
    assert done.code == 1, done
    (result,) = done.results()
    assert result["verdict"] == "diverged"
    source = result["versions"]["mlx-lm source"]
    assert source.startswith(f"{broken}@")
    assert "(dirty, " in source
    assert f"mlx-lm source {source}" in done.out
    assert source in (done.folder / "pages" / "index.html").read_text()
    assert f"rerun:    conformance show --library-path {broken} {CASE}" in done.out


@pytest.mark.nightly
def test_a_path_of_python_is_recognised_too(conformance, broken):
    alone = ("--jobs", "1", "--explain-seconds", "0", "--json", "r.jsonl")
    done = conformance(*RUN, *alone, PYTHONPATH=str(broken))
    assert done.results()[0]["versions"]["mlx-lm source"].startswith(f"{broken}@")
    assert done.results()[0]["verdict"] == "diverged"


def test_without_it_nothing_is_said_of_a_source(conformance):
    done = conformance(*RUN, "--jobs", "1", "--json", "r.jsonl")
    assert done.code == 0, done
    assert "mlx-lm source" not in done.results()[0]["versions"]


def test_a_script_is_tried_with_the_same_code_and_names_it(conformance, broken):
    options = ("--library-path", str(broken), "--seconds", "0")
    done = conformance("repro", CASE, *options, "--out", "script.py")
    assert done.code == 0, done
    assert "WRONG" in done.err
    script = " ".join((done.folder / "script.py").read_text().split())
    assert f"Made with {broken}@" in script


@pytest.mark.nightly
def test_one_case_is_shown_of_the_checkout(conformance, broken):
    done = conformance("show", CASE, "--library-path", broken)
    assert done.code == 1, done
    assert f"mlx-lm source {broken}@" in done.out


def test_a_wrong_folder_is_one_sentence(conformance, tmp_path):
    for command in (RUN, ("show", CASE), ("explain", CASE), ("smoke",)):
        done = conformance(*command, "--library-path", tmp_path)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith(f"conformance: --library-path: {tmp_path} has no package")
        assert done.err.count("\n") == 1


def commands(parent, context, *names):
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, context, *names, name)
        else:
            yield " ".join((*names, name)), command


def test_each_command_that_loads_a_library_has_it():
    importlib.import_module("conformance.app.cli.golden")
    found = {
        name
        for name, command in commands(group, click.Context(group))
        if not any("--library-path" in option.opts for option in command.params)
    }
    assert found == WITHOUT
