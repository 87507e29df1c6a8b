"""``conformance list``."""

import json
from pathlib import Path

import pytest

TOY = Path(__file__).parents[2] / "toy"


def test_families_with_modules_that_are_excluded_and_uncovered(conformance):
    done = conformance("list", "families", TOY_MODULES="novel")
    assert done.code == 0, done
    lines = [line.split() for line in done.out.splitlines()]
    assert ["calm", "toy", "calm", "text", "8", "toy", "(3)"] in lines
    assert ["toy", "helper", "no", "model"] in lines
    assert ["toy", "novel"] in lines


def test_families_as_json_say_what_applies(conformance):
    listing = json.loads(conformance("list", "families", "--json").out)
    calm = next(row for row in listing["families"] if row["family"] == "calm")
    assert calm["engines"] == {"toy": ["repeat", "ragged", "staggered"]}
    assert calm["left_out"] == {"toy": {}}
    assert calm["window"] == 8
    assert listing["excluded"] == [{"library": "toy", "module": "helper", "reason": "no model"}]
    assert listing["uncovered"] == []


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("engines", ["toy", "toy", "9", "repeat, ragged, staggered"]),
        ("scenarios", ["ragged", "the ragged ingredient", "toy"]),
        ("plugins", ["toy", "toy 1.2.3", "abacus"]),
    ],
)
def test_the_others(conformance, what, expected):
    done = conformance("list", what)
    assert any(all(part in line for part in expected) for line in done.out.splitlines()), done
    assert json.loads(conformance("list", what, "--json").out)[what]


def test_families_of_an_engine_are_loaded_and_described(conformance):
    listing = json.loads(conformance("list", "families", "--engine", "toy", "--json").out)
    calm = next(row for row in listing["families loaded"] if row["family"] == "calm")
    assert calm["caches"] == "ToyCache"
    assert calm["scenarios"] == ["repeat", "ragged", "staggered"]
    assert listing["left out"] == []
    assert listing["excluded"] == [{"module": "helper", "reason": "no model"}]


def test_only_families_are_listed_by_engine(conformance):
    done = conformance("list", "plugins", "--engine", "toy")
    assert done.code == 2
    assert "--engine goes with `list families` only" in done.err


def test_what_else_is_refused(conformance):
    assert conformance("list", "wishes").code == 2


def test_a_broken_plugin_is_one_sentence(conformance, tmp_path):
    broken = tmp_path / "toy_plugin.py"
    broken.write_text("raise ImportError('the toy is in pieces')")
    done = conformance("list", "families", PYTHONPATH=f"{tmp_path}:{TOY}")
    assert done.code == 2
    assert done.err == (
        "conformance: plugin 'toy' (toy_plugin) could not be loaded: "
        "ImportError: the toy is in pieces\n"
    )
