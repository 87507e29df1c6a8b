"""The shipped recipe is sensitive to its media; a planted insensitive one is reported."""

import msgspec

from conformance.core.family import Recipe, WeightRule, load_family
from conformance.plugins.mlx_vlm import media_sensitivity
from conformance.plugins.mlx_vlm.loading import load
from conformance.plugins.mlx_vlm.plugin import FAMILIES


def measured(**changes):
    family = load_family(FAMILIES / "qwen2_vl.json")
    facts = msgspec.structs.replace(family.facts, **changes)
    return media_sensitivity.measure(load(msgspec.structs.replace(family, facts=facts)))


def media(found):
    return {signal.where: signal.nats for signal in found.signals if signal.kind == "media"}


def test_every_kind_of_media_has_an_effect():
    found = measured()
    signals = media(found)
    assert signals.keys() == {
        "another image",
        "a token of the image missing",
        "text after the image one position later",
        "another video",
        "a token of the video missing",
        "text after the video one position later",
    }
    assert min(signals.values()) > 1000 * found.noise
    assert found.ratio >= 1000


def test_a_model_that_does_not_see_is_reported():
    recipe = load_family(FAMILIES / "qwen2_vl.json").facts.weights
    blind = WeightRule("vision_tower.merger.mlp.*.weight")
    found = measured(weights=Recipe(recipe.embedding_std, recipe.logit_scale, (blind,)))
    assert media(found)["another image"] == 0
    assert not found.sensitive
