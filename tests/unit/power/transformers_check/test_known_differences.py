"""What is known of disagreements: it can be read, still points at something, and is used."""

import importlib.metadata
import importlib.util
from pathlib import Path

import msgspec
import pytest

from conformance.core.errors import FamilyError
from conformance.core.family import Facts, Family
from conformance.power.transformers_check.known_differences import (
    Adjustment,
    Cause,
    changed,
    load_known,
    merged,
    prompt_of,
    without,
)
from conformance.run.registry import build_registry

KNOWN = load_known()
CAUSES = [(family, cause) for family, known in KNOWN.items() for cause in known.cause]


READ = {"mlx_lm": "0.32.2", "transformers": "5.23.0"}
"""The releases that the lines are of."""


def line_at(place):
    """The source line of ``package/path.py:number`` in the installed package, stripped."""
    path, _, number = place.rpartition(":")
    package = importlib.util.find_spec(path.split("/")[0]).submodule_search_locations[0]
    lines = (Path(package).parent / path).read_text(encoding="utf-8").splitlines()
    return lines[int(number) - 1].strip()


def test_a_cause_is_in_the_code_of_the_library_that_is_wrong():
    places = [(cause.wrong, cause.at) for _, cause in CAUSES]
    assert {wrong for wrong, _ in places} <= set(READ)
    assert [at for wrong, at in places if not at.startswith(f"{wrong}/")] == []


@pytest.mark.parametrize("library", READ)
def test_a_cause_is_at_a_line_with_code(library):
    if importlib.metadata.version(library) != READ[library]:
        pytest.skip(f"lines are those of {library} {READ[library]}")
    places = [cause.at for _, cause in CAUSES if cause.wrong == library]
    assert [at for at in places if not line_at(at)] == []


def test_a_line_is_read_where_it_is():
    assert line_at("mlx_lm/models/gemma.py:2") == ""
    assert "Copyright" in line_at("mlx_lm/models/gemma.py:1")


def test_a_cause_changes_something():
    fields = {"wrong", "at", "what"}
    changes = [(family, msgspec.structs.asdict(cause)) for family, cause in CAUSES]
    still = [f for f, cause in changes if not any(cause[name] for name in cause.keys() - fields)]
    assert still == []


def test_all_that_is_known_is_of_a_family_that_there_is():
    families = {name for library, name in build_registry().families if library == "mlx_lm"}
    assert set(KNOWN) <= families


def test_fields_go_into_the_table_that_is_there():
    config = {"a": 1, "text_config": {"b": 2, "c": 3}}
    assert merged(config, {"text_config": {"b": 4}}) == {"a": 1, "text_config": {"b": 4, "c": 3}}
    assert config["text_config"]["b"] == 2


def test_fields_are_left_out_by_their_path():
    config = {"a": 1, "text_config": {"b": 2}}
    assert without(config, ("a", "text_config.b", "nowhere.c")) == {"text_config": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[llama\n", "known.toml"),
        ("[[llama.adjust]]\nboth = { a = 1 }\n", "why"),
        ("[[llama.cause]]\nwrong = 'x'\nat = 'y'\nwhat = 'z'\nbot = 1\n", "bot"),
    ],
)
def test_a_malformed_file_names_itself_and_the_field(tmp_path, text, message):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(FamilyError, match=message):
        load_known(path)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(FamilyError, match="can't be read"):
        load_known(tmp_path / "none.toml")


FAMILY = Family("x", Facts(), {"model_type": "x", "vocab_size": 64, "text_config": {"a": 1}})


def test_a_prompt_is_longer_than_the_windows_and_stays_in_the_vocabulary():
    wide = msgspec.structs.replace(FAMILY, facts=Facts(window=16, tokens=(10, 20)))
    assert len(prompt_of(FAMILY)) >= 24
    assert len(prompt_of(wide)) > 3 * 16
    assert set(prompt_of(wide)) <= set(range(10, 20))
    assert len(set(prompt_of(wide))) > 5
    assert prompt_of(FAMILY) == prompt_of(FAMILY)


def test_what_both_get_and_what_one_gets():
    adjustment = Adjustment(
        why="y", both={"n": 1}, null=("m",), transformers={"n": 2}, drop=("text_config.a",)
    )
    ours, theirs = changed(FAMILY, (adjustment,))
    assert (ours["n"], ours["m"], ours["text_config"]) == (1, None, {"a": 1})
    assert (theirs["n"], theirs["m"], theirs["text_config"]) == (2, None, {})
    assert FAMILY.config["text_config"] == {"a": 1}


def test_a_tower_is_one_table_of_the_config():
    cause = Cause(wrong="mlx_lm", at="a:1", what="w", both={"text_config": {"b": 2}})
    ours, theirs = changed(FAMILY, (Adjustment(why="y", tower="text_config"), cause))
    assert ours["text_config"] == {"a": 1, "b": 2}
    assert theirs == {"a": 1, "b": 2}
