"""The mends of falcon_ocr and falcon_perception."""

import pytest

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.plugins.mlx_vlm.mends import falcon


@pytest.mark.parametrize(
    ("family", "mended"),
    [
        ("falcon_ocr", falcon.images_of_falcon_ocr_are_whole),
        ("falcon_perception", falcon.images_of_falcon_perception_are_whole),
    ],
)
def test_only_a_batch_cuts_prompts_and_only_texts(family, mended):
    may_cut = part("generate.common")._chunked_prefill_enabled
    language_model = part(f"models.{family}.language").LanguageModel
    model = type("Whole", (part(f"models.{family}").Model,), {"language_model": language_model})
    with mended.repair(Hits()):
        assert not may_cut(model), "generate_step cuts no prompt, as without the mend"
        assert may_cut(language_model, prefill_kwargs={})
        assert not may_cut(language_model, prefill_kwargs={"pos_hw": 1})
