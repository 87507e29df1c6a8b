"""Each option of a run is declared once, and gives the same setting wherever it comes from."""

import dataclasses
from pathlib import Path

import pytest

from conformance.app.cli.run import command
from conformance.app.run_settings import OPTIONS, Settings, settings_of

CHANGED = {
    "no_expectations": ("use_expectations", False),
    "no_mends": ("mends", False),
    "no_oracle_cache": ("oracle_cache", False),
}


def test_the_command_line_has_the_words_of_each():
    for option in OPTIONS:
        (found,) = [one for one in command.params if f"--{option.name}" in one.opts]
        assert (found.help, found.name) == (option.text, option.key)


def test_without_options_the_settings_are_the_defaults():
    assert (
        settings_of({option.key: None for option in OPTIONS if option.key != "tier"}) == Settings()
    )


@pytest.mark.parametrize("key", CHANGED)
def test_a_flag_changes_its_setting_alone(key):
    field, value = CHANGED[key]
    assert settings_of({key: True}) == dataclasses.replace(Settings(), **{field: value})


def test_paths_are_absolute_and_seeds_are_text():
    found = settings_of({"family_files": (Path("a.json"),), "json": Path("r"), "seeds": (1,)})
    assert found.family_files == (Path.cwd() / "a.json",)
    assert (found.json, found.seeds) == (Path.cwd() / "r", ("1",))


def test_a_checkpoint_takes_its_options():
    given = settings_of({"model": Path("m"), "force": True, "trust_remote_code": False}).checkpoint
    assert (given.folder, given.force, given.trusted) == (Path.cwd() / "m", True, False)


@pytest.mark.parametrize(
    ("given", "tier"),
    [
        ({}, "full"),
        ({"tier": None}, "default"),
        ({"tier": None, "families": ("llama",)}, "full"),
        ({"tier": None, "model": Path("m")}, "full"),
        ({"tier": "quick", "scenarios": ("ragged",)}, "quick"),
    ],
)
def test_named_families_are_run_in_the_full_tier(given, tier):
    assert settings_of(given).tier == tier
