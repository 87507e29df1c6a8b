"""Which files are mutated."""

import importlib.metadata
import importlib.util
from types import SimpleNamespace

import pytest

from conformance.core.errors import ConformanceError
from conformance.power.mutants import targets
from conformance.power.mutants.targets import BATCHING, files_of, mutants_in


def missing(name):
    raise ModuleNotFoundError(name, name="libcst")


without_imports = SimpleNamespace(
    import_module=missing, metadata=importlib.metadata, util=importlib.util
)


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def planted(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    return {"planted/m.py": path}


@pytest.mark.parametrize("library", BATCHING)
def test_each_pattern_of_batching_names_installed_files(library):
    found = files_of(library, ())
    assert all(path.is_file() for path in found.values())
    assert f"{library}/models/cache.py" in found


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConformanceError, match=r"--module: no file of .* matches 'mlx_lm/no\.py'"):
        files_of("mlx_lm", ("mlx_lm/no.py",))


def test_a_library_without_a_choice_needs_one():
    with pytest.raises(ConformanceError, match="json: name the files to mutate"):
        files_of("json", ())
    with pytest.raises(ConformanceError, match="nothing_of_this is not installed"):
        files_of("nothing_of_this", ())


def test_functions_are_chosen_by_name(planted):
    assert {m.function for m in mutants_in(planted)} == {"f", "g"}
    assert {m.function for m in mutants_in(planted, ("g*",))} == {"g"}


def test_what_was_made_is_kept_and_needs_no_mutmut(planted, monkeypatch):
    made = mutants_in(planted)
    monkeypatch.setattr(targets, "_release", lambda: "")
    monkeypatch.setattr(targets, "importlib", without_imports)
    assert mutants_in(planted) == made


def test_a_file_that_changed_is_read_anew(planted):
    assert len(mutants_in(planted)) == 2
    planted["planted/m.py"].write_text("def f():\n    return 3\n")
    assert [m.after for m in mutants_in(planted)] == ["return 4"]


def test_what_is_not_installed_is_named_with_what_to_do(planted, monkeypatch):
    monkeypatch.setattr(targets, "importlib", without_imports)
    with pytest.raises(ConformanceError, match=r"needs libcst: pip install .*\[mutants\]"):
        mutants_in(planted)


def test_a_file_that_is_no_python_is_named(planted):
    planted["planted/m.py"].write_text("def f(:\n")
    with pytest.raises(ConformanceError, match=r"m\.py is not Python"):
        mutants_in(planted)
