"""Globs of engines mean servers and split models only where they say so."""

import pytest

from conformance.core.names import did_you_mean, means


@pytest.mark.parametrize(
    ("glob", "name", "meant"),
    [
        ("mlx_*", "mlx_lm", True),
        ("mlx_*", "mlx_lm_server", False),
        ("*", "mlx_vlm_server", False),
        ("*_server", "mlx_vlm_server", True),
        ("mlx_lm_server", "mlx_lm_server", True),
        ("mlx_lm", "mlx_lm_server", False),
        ("http", "http", True),
        ("mlx_lm*", "mlx_lm_tensor_parallel_3", False),
        ("*_pipeline*", "mlx_lm_pipeline_3", True),
    ],
)
def test_a_server_is_meant_by_name(glob, name, meant):
    assert means(glob, name) is meant


def test_the_nearest_is_suggested():
    assert did_you_mean("lama", ["llama", "mamba"]) == "; did you mean llama?"
    assert did_you_mean("xyz" * 1000, ["llama"]) == ""
