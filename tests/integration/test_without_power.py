"""What proves the checks may be missing: cases are run and explained, and audits say so."""

import json
import os
from pathlib import Path

from forked import run_python

ROOT = Path(__file__).parents[2]

COMMANDS = """
import json, sys
sys.modules["conformance.power"] = None
from click.testing import CliRunner
from conformance.app.cli.main import group

def call(*words):
    done = CliRunner().invoke(group, words)
    return {"code": done.exit_code, "out": done.stdout, "err": done.stderr}

AFM7 = ("--engine", "mlx_lm", "--family", "afm7", "--scenario", "ragged", "--tier", "default",
    "--dtype", "float32")
ALONE = ("--jobs", "1", "--explain-seconds", "0")  # it is explained below
CASE = "mlx_lm/afm7/ragged/float32/0"
found = {
    "run": call("run", *AFM7, "--no-expectations", *ALONE, "--json", "r.jsonl"),
    "report": call("report", "r.jsonl"),
    "explain": call("explain", CASE),
    "show faults": call("show", "faults"),
    "audit power": call("audit", "power", "--quick"),
    "audit caches": call("audit", "caches"),
    "audit functions": call("audit", "functions"),
    "golden verify": call("golden", "verify", "--family", "llama"),
}
print(json.dumps(found), file=open("found.json", "w"))
"""


def test_without_it_only_what_proves_the_checks_is_refused(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    env |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_python(["-c", COMMANDS], cwd=tmp_path, env=env, timeout=300)
    assert done.returncode == 0, done
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["run"]["code"] == found["report"]["code"] == 1
    assert "1 not expected" in found["run"]["out"] or "diverged" in found["run"]["out"]
    assert found["run"]["err"].count("power") == 0
    missing = "conformance/power is not installed, so no fault is known here"
    assert found["explain"]["code"] == 0
    assert missing in found["explain"]["err"]
    assert "afm7.py" in found["explain"]["out"] or "layers" in found["explain"]["out"]
    assert missing in found["show faults"]["err"]
    for name in ("audit power", "audit caches", "audit functions", "golden verify"):
        assert found[name]["code"] == 2, name
        (line,) = found[name]["err"].splitlines()
        assert line.startswith("conformance: ModuleNotFoundError: ")
        assert "conformance.power" in line
        assert line.endswith("install mlx-conformance with all that it needs")
