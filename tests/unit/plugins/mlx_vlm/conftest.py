"""A family that takes images and videos, loaded once a module; tests must leave it as it is."""

import pytest

from conformance.core.family import load_family
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.mlx_vlm.plugin import FAMILIES


@pytest.fixture(scope="module")
def library():
    return MlxVlm()


@pytest.fixture(scope="module")
def model(library):
    return library.load(load_family(FAMILIES / "qwen2_vl.json"), dtype="float32", seed=0)
