"""The shipped recipe hears its media; a planted deaf one is reported."""

import msgspec

from conformance.core.family import Recipe, WeightRule, load_family
from conformance.plugins.mlx_vlm import hearing, inventory
from conformance.plugins.mlx_vlm.loading import load

FAMILIES = inventory.FAMILIES


def measured(**changes):
    family = load_family(FAMILIES / "qwen2_vl.json")
    facts = msgspec.structs.replace(family.facts, **changes)
    return hearing.measure(load(msgspec.structs.replace(family, facts=facts)))


def media(found):
    return {signal.where: signal.nats for signal in found.signals if signal.kind == "media"}


def test_every_kind_of_media_is_heard():
    found = measured()
    heard = media(found)
    assert heard.keys() == {
        "another image",
        "a token of the image missing",
        "text after the image one position later",
        "another video",
        "a token of the video missing",
        "text after the video one position later",
    }
    assert min(heard.values()) > 1000 * found.noise
    assert found.ratio >= 1000


def test_a_model_that_does_not_see_is_reported():
    recipe = load_family(FAMILIES / "qwen2_vl.json").facts.weights
    blind = WeightRule("vision_tower.merger.mlp.*.weight")
    found = measured(weights=Recipe(recipe.embedding_std, recipe.logit_scale, (blind,)))
    assert media(found)["another image"] == 0
    assert not found.sensitive
