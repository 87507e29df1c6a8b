"""The smallest family, loaded once a module; tests must leave it as it is."""

import pytest

from conformance.core.family import load_family
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_lm.plugin import FAMILIES


@pytest.fixture(scope="module")
def model():
    family = load_family(FAMILIES / "llama.json")
    return MlxLm().load(family, dtype="float32", seed=0)
