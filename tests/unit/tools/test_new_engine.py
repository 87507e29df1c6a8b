"""The package of a new engine: whole or not at all."""

import ast
import tomllib

import pytest

from conformance.core.errors import ConformanceError
from conformance.tools.new_engine import files_of, write_package


def test_the_name_is_that_of_engine_module_and_entry_point():
    files = files_of("my_engine")
    assert set(files) == {"pyproject.toml", "my_engine.py", "test_my_engine.py"}
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["entry-points"]["mlx_conformance"] == {"my_engine": "my_engine"}
    assert project["tool"]["setuptools"]["py-modules"] == ["my_engine"]
    (kind,) = [n for n in ast.parse(files["my_engine.py"]).body if isinstance(n, ast.ClassDef)]
    assert kind.name == "MyEngine"
    assert 'name = "my_engine"' in files["my_engine.py"]
    assert 'engine="my_engine"' in files["test_my_engine.py"]


def test_all_is_written(tmp_path):
    folder = write_package("my_engine", tmp_path / "place")
    assert {path.name for path in folder.iterdir()} == set(files_of("my_engine"))
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-engine", "can't be the name of a module"),
        ("My", "use lower-case letters"),
        ("../x", "can't be the name of a module"),
        ("json", "there is a module 'json' already"),
        ("mlx_lm", "there is a module 'mlx_lm' already"),
    ],
)
def test_a_name_that_cannot_be_a_module_or_is_taken_is_refused(tmp_path, name, message):
    with pytest.raises(ConformanceError, match=message):
        write_package(name, tmp_path / "place")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    (tmp_path / "place").mkdir()
    with pytest.raises(ConformanceError, match="exists already; name another folder with --out"):
        write_package("my_engine", tmp_path / "place")
    assert not list((tmp_path / "place").iterdir())


def test_a_place_where_nothing_can_be_written_is_one_sentence(tmp_path):
    with pytest.raises(ConformanceError, match="cannot write there: No such file"):
        write_package("my_engine", tmp_path / "gone" / "place")
