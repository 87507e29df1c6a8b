"""Which modules of the installed release have a family, a reason, or neither."""

from conformance.core.engine_options import EngineOptions
from conformance.core.family import load_families
from conformance.core.schedule import Request
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.mlx_vlm.plugin import FAMILIES


def test_every_installed_module_has_a_family_or_a_reason():
    found = MlxVlm().coverage()
    covered = {family.module for family in load_families(FAMILIES)}
    assert set(found.modules) == covered | found.excluded.keys()
    assert not covered & found.excluded.keys()


def test_packages_and_plain_modules_are_both_found():
    assert {"qwen2_vl", "rope_utils"} <= set(MlxVlm().coverage().modules)


def test_the_dtype_that_processors_are_given_is_known(library, model):
    low, _ = model.family.tokens
    request = Request("a", (low, low + 1), 1)
    assert library.logits_dtype(model, request, EngineOptions()) == "mlx.core.float32"
