"""Every family with a stand-in gets its inputs from it; an unknown kind is reported."""

import mlx.core as mx
import pytest

from conformance.core.errors import FamilyError
from conformance.core.family import StandIn, load_families
from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.plugin import FAMILIES
from conformance.plugins.mlx_vlm.stand_ins import kinds

WITH_STAND_IN = [f for f in load_families(FAMILIES) if f.facts.stand_in is not None]
WITH_MEDIA = [f for f in WITH_STAND_IN if set(f.facts.modalities) != {"text"}]


@pytest.mark.parametrize("family", WITH_MEDIA, ids=lambda family: family.name)
def test_a_prompt_keeps_its_text_in_order_and_gets_inputs_for_its_medium(family):
    low, _ = family.tokens
    kind = next(kind for kind in family.facts.modalities if kind != "text")
    text = (low, low + 1, low + 2)
    parts = [text[:2], Media(kind, family.facts.sizes[kind][0]), text[2:]]
    made = kinds.process(family.facts.stand_in, family, parts)
    following = iter(made["input_ids"][0].tolist())
    assert all(token in following for token in text)
    assert made["input_ids"].dtype == mx.int32
    assert len(made) > 1


def test_every_kind_is_used():
    assert {family.facts.stand_in.kind for family in WITH_STAND_IN} == set(kinds.MAKERS)


def test_an_unknown_kind_is_named():
    with pytest.raises(FamilyError, match=r"stand_in.kind 'no such' is none of deepseek_ocr, "):
        kinds.process(StandIn("no such"), WITH_STAND_IN[0], [])
