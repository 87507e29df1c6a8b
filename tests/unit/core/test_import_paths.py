"""Public names, short paths, and what old paths end in."""

import importlib
import subprocess
import sys

import pytest

import conformance
from conformance.core import import_paths
from conformance.core.import_paths import MOVED, SHORT


def test_a_public_name_is_that_of_its_module():
    for name in sorted(set(conformance.__all__) - {"__version__"}):
        module = importlib.import_module(f"conformance.{conformance._MODULE_OF[name]}")
        assert getattr(conformance, name) is getattr(module, name), name


def test_every_public_name_has_a_module():
    assert {*conformance._MODULE_OF, "__version__"} == set(conformance.__all__)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'assert_batching'"):
        _ = conformance.assert_batching


def test_a_short_path_gives_the_module_itself():
    for short, path in SHORT.items():
        found = importlib.import_module(f"conformance.{short}")
        assert found is importlib.import_module(f"conformance.{path}"), short


def test_a_module_within_a_short_path_is_the_module_itself():
    assert importlib.import_module("conformance.suite.cases") is importlib.import_module(
        "conformance.app.suite.cases"
    )


@pytest.mark.parametrize("name", ["conformance.engine.nothing", "conformance.nothing"])
def test_what_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module(name)


def test_an_old_path_ends_in_a_sentence_that_names_a_folder_that_is_there():
    for old in MOVED:
        with pytest.raises(ModuleNotFoundError) as caught:
            importlib.import_module(f"conformance.{old}")
        folder = f"conformance.{MOVED[old]}"
        assert str(caught.value) == f"conformance.{old} has moved to {folder}; change the import"
        assert importlib.util.find_spec(folder), old


def test_so_does_a_path_below_it():
    with pytest.raises(ModuleNotFoundError, match=r"^conformance\.html has moved to conformance\."):
        importlib.import_module("conformance.html.charts")


def test_no_path_is_both_kept_and_moved():
    assert not set(SHORT) & set(MOVED)


def test_the_finder_is_installed_once():
    import_paths.install()
    assert sum(isinstance(f, import_paths.PathFinder) for f in sys.meta_path) == 1


def test_nothing_heavy_is_imported_with_the_package():
    heavy = {"mlx", "numpy", "pluggy", "msgspec"}
    code = f"import sys, conformance; print(*({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
