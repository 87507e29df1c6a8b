"""Processors that an older release cannot make from what a family says."""

import pytest
from mlx_vlm import utils

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import load_family
from conformance.plugins.mlx_vlm import compat, inventory, loading

SAID = {
    "Qwen2VLVideoProcessor requires the Torchvision library: torchvision": "torchvision",
    "Unrecognized image processor in /tmp/model": "image_processor_type in its config",
}


@pytest.fixture
def load(monkeypatch):
    """Load a family where transformers refuses its processor with these words."""

    def run(text, *, old):
        def refuse(*_, **__):
            raise ValueError(text)

        monkeypatch.setattr(utils, "load", refuse)
        monkeypatch.setattr(compat, "embeds_together", lambda: old)
        return loading.load(load_family(inventory.FAMILIES / "qwen2_vl.json"))

    return run


@pytest.mark.parametrize(("text", "missing"), SAID.items())
def test_a_processor_that_0_4_cannot_make_is_not_supported_there(load, text, missing):
    with pytest.raises(Unsupported, match=f"not supported without {missing}"):
        load(text, old=True)


@pytest.mark.parametrize(("text", "old"), [("no such file", True), *((t, False) for t in SAID)])
def test_any_other_failure_is_one(load, text, old):
    with pytest.raises(ModelError, match=text):
        load(text, old=old)
