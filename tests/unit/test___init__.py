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


@pytest.mark.parametrize("name", sorted(set(conformance.__all__) - {"__version__"}))
def test_a_public_name_is_that_of_its_module(name):
    value = getattr(conformance, name)
    assert value is getattr(
        importlib.import_module(f"conformance.{conformance._MODULE_OF[name]}"), name
    )


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
