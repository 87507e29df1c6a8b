"""Properties of mlx-lm's own functions: what is known of them, and that they detect a defect."""

from importlib import import_module

import pytest
from mlx_lm.models import cache

from conformance.power.properties.mlx_lm import drafts, properties

generate = import_module("mlx_lm.generate")

DECODE = drafts.speculative_generate_step


def never_drafted(*args, **options):
    """Gives each token as the model's own."""
    return ((token, logprobs, False) for token, logprobs, _ in DECODE(*args, **options))


def shown_the_last(*args, logits_processors=None, **options):
    """Shows processors one token only."""
    given = [lambda tokens, x, f=f: f(tokens[-1:], x) for f in logits_processors or ()]
    return DECODE(*args, logits_processors=given, **options)


OWN = {one.name: one for one in properties() if one.name.startswith(("kept", "caches", "drafts"))}
# For each property that holds what is broken, where, and by what.
BROKEN = {
    "caches: room": (cache.BatchKVCache, "step", 255),
    "drafts: tokens": (generate, "trim_prompt_cache", lambda caches, count: None),
    "drafts: those of a twin": (drafts, "speculative_generate_step", never_drafted),
    "drafts: what processors are shown": (drafts, "speculative_generate_step", shown_the_last),
}


UNSHOWN = "drafts: what processors are shown of a prompt"


def test_a_prompt_is_not_shown_to_processors_with_drafts():
    assert "it is shown [23]" in OWN[UNSHOWN].problem()


def test_a_prefix_of_one_token_is_not_found():
    assert "those of 0 are found" in OWN["kept: a prefix of one token"].problem()


@pytest.mark.parametrize("name", BROKEN)
def test_a_property_holds_and_detects_what_is_broken(monkeypatch, name):
    assert OWN[name].problem() == ""
    monkeypatch.setattr(*BROKEN[name], raising=False)
    assert OWN[name].problem() != ""


def test_each_is_tried_above():
    assert set(OWN) == {*BROKEN, "kept: a prefix of one token", UNSHOWN}
