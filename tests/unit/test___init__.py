"""Public names come from the package itself."""

import importlib
import subprocess
import sys

import pytest

import conformance


@pytest.mark.parametrize("name", sorted(set(conformance.__all__) - {"__version__"}))
def test_a_public_name_is_that_of_its_module(name):
    value = getattr(conformance, name)
    assert value is getattr(
        importlib.import_module(f"conformance.{conformance._MODULE_OF[name]}"), name
    )


def test_every_public_name_has_a_module():
    assert {*conformance._MODULE_OF, "__version__"} == set(conformance.__all__)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'assert_batching'"):
        _ = conformance.assert_batching


def test_nothing_heavy_is_imported_with_the_package():
    heavy = {"mlx", "numpy", "pluggy", "msgspec"}
    code = f"import sys, conformance; print(*({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
