"""``conformance new engine``: the package works as it is written, and finds what is planted."""

import re

import pytest


@pytest.fixture
def conformance(conformance):
    """The command, with the installed plugins only."""
    return lambda *arguments: conformance(*arguments, PYTHONPATH="")


@pytest.fixture
def written(conformance, tmp_path):
    """The package, its files where the commands are called."""
    done = conformance("new", "engine", "my_engine", "--out", "package")
    assert done.code == 0, done
    for path in (tmp_path / "package").iterdir():
        path.rename(tmp_path / path.name)
    return done


def test_what_it_says_to_do_next_works(conformance, written):
    commands = [line.split() for line in written.out.partition("Next:")[2].splitlines() if line]
    assert commands[0] == ["cd", "package"]
    smoke, run = (words[1:] for words in commands[1:])
    done = conformance(*smoke)
    assert done.code == 0, done
    assert done.out.startswith("my_engine on llama: fine: 2 rows gave")
    done = conformance(*run, "--jobs", "1", "--scenario", "ragged", "--scenario", "early_finish")
    assert done.code == 0, done
    assert "OK: 2 cases, all as expected" in done.out


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(
    ("right", "wrong", "code", "state"),
    [
        ("BatchKVCache(padding)", "BatchKVCache([0] * len(padding))", 1, "engine wrong"),
        ("layer.filter(mx.array(kept))", "pass", 1, "engine wrong"),
        ("self._queue += submissions", "pass", 3, "adapter broken"),
    ],
)
def test_a_defect_in_it_is_found(conformance, tmp_path, right, wrong, code, state):
    module = tmp_path / "my_engine.py"
    assert module.read_text().count(right) == 1
    module.write_text(module.read_text().replace(right, wrong))
    done = conformance("smoke", "-p", "my_engine", "--engine", "my_engine")
    assert done.code == code, done
    assert f"my_engine on llama: {state}: " in done.out


@pytest.mark.usefixtures("written")
def test_its_test_passes_and_fails_for_a_defect(start, tmp_path):
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "llama")
    done = start(*arguments, PYTHONPATH="")
    assert done.code == 0, done
    assert "1 passed" in done.out
    module = tmp_path / "my_engine.py"
    module.write_text(module.read_text().replace("(padding)", "([0] * len(padding))"))
    done = start(*arguments, PYTHONPATH="")
    assert done.code == 1, done
    assert "diverged: my_engine/llama/" in done.out
    assert re.search(
        r"rerun: +conformance show -p my_engine my_engine/llama/\w+/float32/0\n", done.out
    )


def test_a_mistake_is_one_sentence_and_nothing_is_written(conformance, tmp_path):
    done = conformance("new", "engine", "json")
    assert done.code == 2
    assert done.err == (
        "conformance: there is a module 'json' already; name the engine otherwise\n"
    )
    assert not list(tmp_path.iterdir())
