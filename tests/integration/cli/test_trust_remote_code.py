"""``--trust-remote-code``: without it no code of a checkpoint's folder is run, in no process."""

import json

import pytest
from checkpoint_folders import make_folder
from click.testing import CliRunner

from conformance.app.cli.main import group

# Modules that Python, workers, pytest and the libraries import early, and those they look for.
SHADOWING = ("random", "socket", "tokenize", "mlx_lm", "tokenizers", "conftest", "sitecustomize")


@pytest.fixture
def hostile(tmp_path):
    """A checkpoint whose Python files leave a mark when they are run."""
    folder = make_folder(tmp_path / "hostile")
    for name in (*SHADOWING, "evil"):
        mark = f"open({str(tmp_path / 'mark')!r}, 'a').write(__name__)\n"
        (folder / f"{name}.py").write_text(mark)
    return folder


@pytest.fixture
def change(hostile):
    """Change fields of one of the folder's files."""

    def call(name, **fields):
        path = hostile / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return call


def test_nothing_is_run_by_workers_that_start_in_the_folder(start, hostile, tmp_path):
    """Python looks for modules in the current folder first; workers do not."""
    code = f"import os; os.chdir({str(hostile)!r}); from conformance.app.cli import main; main()"
    options = ("--model", ".", "--scenario", "repeat", "--jobs", "2")
    kept = ("--cache-dir", tmp_path / "cache", "--json", tmp_path / "r.jsonl")
    done = start("-P", "-c", code, "run", *options, *kept, PYTHONPATH="")  # as the command starts
    assert done.code == 0, done
    assert done.verdicts() == {"hostile/repeat": "exact"}
    assert not (tmp_path / "mark").exists()


def test_a_tokenizer_that_is_code_is_refused(hostile, change, tmp_path):
    config = {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}}
    change("tokenizer_config.json", **config)
    options = ("--cache-dir", str(tmp_path / "cache"), "--jobs", "1")
    done = CliRunner().invoke(group, ["run", "--model", str(hostile), *options])
    assert done.exit_code == 2, done.output
    assert "it is Python code of the folder; --trust-remote-code allows that" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "mark").exists()


def test_a_new_model_whose_config_names_code_is_refused(hostile, change, tmp_path):
    change("config.json", model_file="evil.py")
    done = CliRunner().invoke(group, ["new", "family", str(hostile)])
    assert done.exit_code == 2, done.output
    assert "asks for Python code to be run (evil.py); --trust-remote-code allows" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "mark").exists()
