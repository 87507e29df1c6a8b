"""Invalid calls as code."""

import ast

import pytest

from conformance.plugins.mlx_lm.engine import PROBES as MLX_LM
from conformance.plugins.mlx_vlm.engine import PROBES as MLX_VLM
from conformance.tools.repro.calls import CALLS


@pytest.mark.parametrize(("library", "probes"), [("mlx_lm", MLX_LM), ("mlx_vlm", MLX_VLM)])
def test_each_invalid_call_of_an_engine_has_code(library, probes):
    assert set(probes) <= set(CALLS[library])
    for kind in probes:
        code = CALLS[library][kind]
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        assert names <= {"generator", "BatchGenerator", "processor", "embeds", "sample_utils", "mx"}
        assert isinstance(ast.parse(code).body[0].value, ast.Call)
