"""Traits of mlx-lm's models by which their defects may be known ones."""

import pytest

from conformance.plugins.mlx_lm.code_traits import code_traits
from conformance.run.registry import build_registry


@pytest.fixture(scope="module")
def found():
    registry = build_registry()
    library = registry.libraries["mlx_lm"]

    def of(name):
        return code_traits(library.load(registry.families["mlx_lm", name], dtype="float32", seed=0))

    return of


def test_positions_that_no_layer_reads_differ_from_those_that_all_read(found):
    learned, rotary = found("gpt2"), found("llama")
    assert "offset:unread" in learned, "only the first layer's offset is a position"
    assert "offset:unread" not in rotary
    assert {"last:KVCache", "part:llama.Attention", "part:rope_utils.Llama3RoPE"} <= rotary


def test_what_decodes_no_batch_has_the_other_traits(found):
    traits = found("llama-dynamic")
    assert "part:rope_utils.DynamicNTKScalingRoPE" in traits
    assert "offset:unread" not in traits
