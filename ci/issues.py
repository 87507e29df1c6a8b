"""Runs the scripts of upstream issues and stores what they print: python ci/issues.py [ID...].

The scripts are in ``expectations/issues/``; ``docs/defects.md`` and ``conformance show defects ID
--issue`` show them with their output. A server has the tiny model of
``docs/defects/mlx_vlm/server_requests.py``.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from conformance.checks.expectations import load_expectations
from conformance.core.known_defect import SERVED

ROOT = Path(__file__).parents[1]
ISSUES = ROOT / "expectations" / "issues"
_SECONDS = 300


def printed(path: Path) -> str:
    """What a script prints, below the release.

    Raises:
        SystemExit: it does not show its defect.
    """
    if path.read_text(encoding="utf-8").startswith(SERVED):
        requests = _requests()
        with tempfile.TemporaryDirectory() as name:
            requests.write(Path(name))
            with requests.Server(name) as server:
                done = _run(path, server.url, server.model)
    else:
        done = _run(path)
    if done.returncode != 1:
        raise SystemExit(f"{path.name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    package = next(e.package for e in load_expectations().defects if e.id == path.stem)
    return f"{package} {version(package)}\n{done.stdout}"


def _run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _requests() -> ModuleType:
    file = ROOT / "docs" / "defects" / "mlx_vlm" / "server_requests.py"
    spec = importlib.util.spec_from_file_location("server_requests", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    for file in sorted(ISSUES.glob("*.py")):
        if not sys.argv[1:] or file.stem in sys.argv[1:]:
            text = printed(file)
            file.with_suffix(".txt").write_text(text, encoding="utf-8")
            print(f"{file.stem}: {text}", flush=True)
