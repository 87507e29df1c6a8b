"""Entries of known defects: strict, each with its script, none that no longer shows."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from conformance.core.errors import ExpectationError
from conformance.power.caches.cache_defects import explain, load_cache_defects, shows
from conformance.power.caches.discovery import discover
from conformance.power.caches.finding import FindingError, Problem

ROOT = Path(__file__).parents[4]
DEFECTS = load_cache_defects()
FOUND = discover()

ENTRY = """
[[defect]]
id = "one"
class = ["mlx_lm.Batch*"]
verb = ["extract"]
what = ["error"]
says = "None"
facts = ["empty"]
where = "a.py:1"
why = "because"
package = "mlx-lm"
versions = ">0"
script = "a.py"
play = "mlx_lm.BatchKVCache 0 float32; new 0 0; decode 1"
"""


def finding(**changes):
    @dataclass
    class Given:
        name: str = "mlx_lm.BatchKVCache"
        verb: str = "extract"
        what: str = "error"
        text: str = "a None too many"
        facts: frozenset = frozenset({"empty", "ragged"})

    given = Given(**changes)
    problem = Problem(given.what, given.text)
    return FindingError(given.name, given.verb, problem, facts=given.facts, steps=[])


def loaded(tmp_path, text):
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    return load_cache_defects(path)


@pytest.mark.parametrize("entry", DEFECTS, ids=lambda entry: entry.id)
def test_each_entry_shows_in_the_installed_release(entry):
    assert shows(entry, FOUND, DEFECTS)


def test_each_script_has_an_entry_and_each_entry_a_script():
    named = {entry.script for entry in DEFECTS}
    assert [script for script in named if not (ROOT / script).is_file()] == []
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "docs/defects/caches").glob("*.py")}
    assert there - named == set()


def test_an_entry_explains_what_it_says(tmp_path):
    assert explain(loaded(tmp_path, ENTRY), finding()) == "one"


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "mlx_vlm.BatchKVCache"},
        {"verb": "merge"},
        {"what": "mask"},
        {"text": "something else"},
        {"facts": frozenset({"ragged"})},
    ],
)
def test_an_entry_explains_nothing_else(changes, tmp_path):
    assert explain(loaded(tmp_path, ENTRY), finding(**changes)) is None


def test_an_entry_that_no_longer_shows_is_reported(tmp_path):
    (entry,) = loaded(tmp_path, ENTRY)
    assert not shows(entry, FOUND, (entry,))


def test_an_entry_for_another_release_is_not_active(tmp_path):
    assert loaded(tmp_path, ENTRY.replace(">0", "<0.1")) == ()
    (entry,) = loaded(tmp_path, ENTRY)
    assert not msgspec.structs.replace(entry, package="no-such-package").active()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "one"', "id = 1", "Expected `str`"),
        ('"error"', '"eror"', "'what' knows no"),
        (">0", "later", "is not a specifier"),
        ('says = "None"', 'says = "("', "unterminated"),
        ('why = "because"', "", "missing required field `why`"),
        ("[[defect]]", "[[defect", "not TOML"),
    ],
)
def test_an_entry_that_is_not_valid_is_refused(old, new, said, tmp_path):
    with pytest.raises(ExpectationError, match=said):
        loaded(tmp_path, ENTRY.replace(old, new))


def test_an_id_is_used_once(tmp_path):
    with pytest.raises(ExpectationError, match="used twice"):
        loaded(tmp_path, ENTRY + ENTRY)
