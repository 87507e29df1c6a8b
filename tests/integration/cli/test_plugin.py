"""``-p``: a plugin module of this folder, which is not installed."""

import pytest

ENGINE = """
from toy_plugin import ToyEngine

from conformance import hookimpl


class Mine(ToyEngine):
    name = "mine"


@hookimpl
def conformance_engines():
    return [Mine]
"""
SELECTED = ("-p", "my_engine", "--engine", "mine", "--family", "calm")


@pytest.fixture
def written(tmp_path):
    """The module, in the folder where the commands are called."""
    (tmp_path / "my_engine.py").write_text(ENGINE)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_its_engine_runs_in_this_process_and_in_workers(conformance, jobs):
    more = ("--family", "quiet", "--jobs", jobs, "--json", "r.jsonl")
    done = conformance("run", *SELECTED, *more)
    assert done.code == 0, done
    found = {(r["engine"], r["family"]) for r in done.results()}
    assert found == {("mine", "calm"), ("mine", "quiet")}


@pytest.mark.usefixtures("written")
def test_a_case_of_it_is_shown_in_a_child_process(conformance):
    done = conformance("show", "-p", "my_engine", "mine/calm/ragged/float32/0")
    assert done.code == 0, done
    assert done.out.startswith("exact: mine/calm/ragged/float32/0")


@pytest.mark.usefixtures("written")
def test_it_is_listed(conformance):
    done = conformance("show", "engines", "-p", "my_engine")
    assert any(line.split()[:2] == ["mine", "toy"] for line in done.out.splitlines()), done
    assert "my_engine" in conformance("show", "plugins", "-p", "my_engine").out


@pytest.mark.usefixtures("written")
def test_a_rerun_names_it_too(conformance):
    more = ("-p", "my_engine", "--engine", "mine", "--family", "silent", "--jobs", "1")
    done = conformance("run", *more)
    assert done.code == 1, done
    assert "rerun:    conformance show -p my_engine mine/silent/" in done.out


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("my_engin", ENGINE, "-p my_engin: there is no module of that name in "),
        ("my_engine.py", ENGINE, "(a module is named without .py)"),
        ("my_engine", "x = 1", "it implements no hook; mark its functions with"),
        ("my_engine", "import gone", "plugin 'my_engine' needs ModuleNotFoundError: No module"),
        ("my_engine", "1 / 0", "plugin 'my_engine' could not be loaded: ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize(
    "command",
    ["run", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("smoke", "show"))],
)
def test_one_that_is_not_there_is_one_sentence(
    conformance, tmp_path, command, name, text, sentence
):
    (tmp_path / "my_engine.py").write_text(text)
    done = conformance(command, "-p", name)
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"my_engine.py", "__pycache__"}


@pytest.mark.usefixtures("written")
def test_pytest_knows_it_by_its_own_option_and_by_ours(suite):
    mine = ("--conformance-engine", "mine", "--conformance-family", "calm")
    for option in ("-p", "--conformance-plugin"):
        done = suite(*mine, option, "my_engine")
        assert done.code == 0, done


NEWER = ENGINE.replace(
    'name = "mine"',
    'name = "mlx_lm"\n\n    @classmethod\n    def accepted(cls):\n'
    '        return {"BatchGenerator.insert": ("prompts", "novel")}',
)


def test_what_a_newer_release_accepts_is_named_at_the_end_of_a_run(conformance, tmp_path):
    (tmp_path / "newer.py").write_text(NEWER)
    done = conformance(
        "run", "-p", "newer", "--engine", "mlx_lm", "--family", "calm", "--jobs", "1"
    )
    assert done.code == 0, done
    said = " ".join(done.out.split())
    assert "mlx_lm: this release accepts novel (BatchGenerator.insert), which nobody" in said
    assert "prompts (Batch" not in said
