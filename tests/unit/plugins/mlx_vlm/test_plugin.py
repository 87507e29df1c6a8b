"""The library is imported only where an engine of it is wanted."""

import subprocess
import sys

import pytest

CODE = """
import sys
from conformance.run.registry import build_registry
found = build_registry(engines=sys.argv[1:])
print("mlx_vlm" in sys.modules, "mlx_vlm" in found.engines)
"""


@pytest.mark.parametrize(
    ("engines", "expected"),
    [(("mlx_lm",), "False False"), (("mlx_vlm_*",), "True True"), ((), "True True")],
)
def test_the_library_is_imported_for_its_own_engines(engines, expected):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *engines], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
