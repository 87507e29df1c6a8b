"""What both sides are given."""

import msgspec

from conformance.core.family import Facts, Family
from conformance.power.transformers_check.inputs import changed, prompt_of
from conformance.power.transformers_check.known_differences import Adjustment, Cause

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
