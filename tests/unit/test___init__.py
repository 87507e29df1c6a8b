"""Public names come from the package itself."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import conformance

CORE = (
    *("core.engine", "core.engine_options", "core.family", "core.faults", "core.library"),
    *("core.mends", "core.origin", "core.schedule", "core.trace", "scenarios.scenario"),
)


def test_a_public_name_is_that_of_its_module():
    for name, module in conformance._MODULE_OF.items():
        value = getattr(importlib.import_module(f"conformance.{module}"), name)
        assert getattr(conformance, name) is value


def test_every_public_name_has_a_module():
    assert {*conformance._MODULE_OF, "__version__"} == set(conformance.__all__)


def test_all_public_names_are_listed_before_their_first_use():
    code = "import conformance; print(*dir(conformance))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*conformance.__all__} <= {*done.stdout.split()}


def test_what_the_page_about_plugins_names_is_there():
    text = (Path(__file__).parents[2] / "docs/plugins.md").read_text(encoding="utf-8")
    core = [importlib.import_module(f"conformance.{name}") for name in CORE]
    named = {*re.findall(r"`(?:[a-z_]+ = )?([A-Z][A-Za-z]+)[`.(]", text)}
    promised = {name for name in named if any(hasattr(module, name) for module in core)}
    assert promised >= {"Engine", "Origin", "Witness", "StepOutput"}
    assert promised <= {*conformance.__all__}
    assert "Stage" in conformance.__all__, "the values of Engine.stages()"


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'assert_batching'"):
        _ = conformance.assert_batching


def test_nothing_heavy_is_imported_with_the_package():
    heavy = {"mlx", "numpy", "pluggy", "msgspec"}
    code = f"import sys, conformance; print(*({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
