"""Properties of each library: this project's own, and those of its plugin."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.core.errors import ExpectationError
from conformance.core.properties import Property
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.power.properties import OWN, load_function_defects, properties_of
from conformance.run.registry import build_registry

GIVEN = Property("given", "mlx_lm/x.py", ("f",), list)


class Giving(MlxLm):
    """mlx-lm, of a plugin that has a property of its own."""

    def properties(self):
        return (GIVEN,)


def test_a_library_s_own_come_beside_those_of_this_project():
    registry = build_registry(engines=("mlx_lm",))
    found = properties_of(dataclasses.replace(registry, libraries={"mlx_lm": Giving()}))
    names = [one.name for one in found["mlx_lm"]]
    assert names[-1] == "given"
    assert any(name.startswith("samplers") for name in names)


def test_a_library_of_somebody_else_has_what_its_plugin_gives():
    registry = dataclasses.replace(build_registry(), libraries={"other": Giving()})
    assert properties_of(registry) == {"other": (GIVEN,)}


ROOT = Path(__file__).parents[3]
# The script that is run by day, as no property shows its defect.
BY_DAY = "policy-lost-in-config"
ENTRY = """
[[defect]]
id = "a"
library = "mlx_lm"
property = "samplers: x"
says = "wrong by \\\\d+"
where = "mlx_lm/x.py:1"
why = "It is."
package = "mlx-lm"
versions = ">=0.1"
script = "docs/x.py"
"""


def loaded(folder, text):
    path = folder / "known.toml"
    path.write_text(text, encoding="utf-8")
    return load_function_defects(path)


def test_an_entry_explains_what_it_says_of_its_property_alone(tmp_path):
    (entry,) = loaded(tmp_path, ENTRY)
    assert entry.explains("mlx_lm", "samplers: x", "it is wrong by 3")
    assert not entry.explains("mlx_lm", "samplers: x", "TypeError: wrong by none")
    assert not entry.explains("mlx_vlm", "samplers: x", "it is wrong by 3")
    assert not entry.explains("mlx_lm", "samplers: y", "it is wrong by 3")


def test_an_entry_without_a_property_is_shown_by_its_script_alone(tmp_path):
    text = ENTRY.replace('property = "samplers: x"\nsays = "wrong by \\\\d+"\n', "")
    (entry,) = loaded(tmp_path, text)
    assert (entry.property, entry.script) == ("", "docs/x.py")
    assert not entry.explains("mlx_lm", "samplers: x", "it is wrong by 3")


def test_an_entry_of_other_releases_is_left_out(tmp_path):
    assert loaded(tmp_path, ENTRY.replace(">=0.1", "<0.1")) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "a"', 'id = "a"\nverb = "x"', "unknown field `verb`"),
        (">=0.1", "new", "is not a specifier"),
        ("wrong by", "wrong (by", "missing \\)"),
        ('script = "docs/x.py"', 'script = "docs/x.py"' + ENTRY, "is used twice"),
    ],
)
def test_a_file_that_is_wrong_names_the_entry(tmp_path, old, new, said):
    with pytest.raises(ExpectationError, match=f"defect 'a'.*{said}"):
        loaded(tmp_path, ENTRY.replace(old, new))


def test_each_known_defect_is_that_of_a_property_which_shows_it():
    own = {
        library: {one.name: one for one in found}
        for library, found in properties_of(build_registry()).items()
    }
    for entry in load_function_defects():
        if entry.property:
            problem = own[entry.library][entry.property].problem()
            assert entry.explains(entry.library, entry.property, problem), problem


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(e, id=e.id, marks=[pytest.mark.nightly] * (e.id != BY_DAY))
        for e in load_function_defects()
    ],
)
def test_each_known_defect_shows_in_its_script(entry):
    done = subprocess.run(
        [sys.executable, ROOT / entry.script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert entry.package in done.stdout


def test_each_script_has_an_entry_and_each_entry_a_script():
    assert OWN.is_file()
    named = {entry.script for entry in load_function_defects()}
    there = (ROOT / "docs/defects/functions").glob("*.py")
    assert {str(path.relative_to(ROOT)) for path in there} <= named
    assert [script for script in named if not (ROOT / script).is_file()] == []
