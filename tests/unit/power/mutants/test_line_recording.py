"""Which engines' runs are recorded: those in which a mutant can be put in."""

import pytest

from conformance.core.engine import Capability
from conformance.power.mutants.line_recording import engines_of
from conformance.run.registry import build_registry


@pytest.fixture(scope="module")
def registry():
    return build_registry()


def test_engines_of_this_process_are_played(registry):
    names = {engine.name for engine in engines_of(registry, "mlx_lm")}
    assert names == {"mlx_lm", "mlx_lm_batch_generate"}
    assert "mlx_vlm" in {engine.name for engine in engines_of(registry, "mlx_vlm")}


@pytest.mark.parametrize("library", ["mlx_lm", "mlx_vlm"])
def test_servers_decode_elsewhere_and_are_not(registry, library):
    own = [engine for engine in registry.engines.values() if engine.library == library]
    assert any(Capability.SERVED in engine.capabilities for engine in own)
    played = list(engines_of(registry, library))
    assert not any(Capability.SERVED in engine.capabilities for engine in played)
