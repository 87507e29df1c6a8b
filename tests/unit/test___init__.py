"""Public names come from the package itself."""

import importlib
import subprocess
import sys

import pytest

import conformance


def test_a_public_name_is_that_of_its_module():
    for name, module in conformance._MODULE_OF.items():
        value = getattr(importlib.import_module(f"conformance.{module}"), name)
        assert getattr(conformance, name) is value


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
