"""A part that cannot be imported stops only what needs it; all planted at once, or one alone."""

import json
import os
from pathlib import Path

import pytest
from forked import run_python

ROOT = Path(__file__).parents[2]

# Parts of the libraries that only a few things need, and plugins of others.
BROKEN = (
    "cryptography mlx_lm.models.ssm mlx_lm.models.mamba2 mlx_vlm.speculative.drafters.qwen3_5_mtp "
    "mlx_vlm.models.llava mlx_lm.server mlx_vlm.server "
    # Names that only another engine, and a few models, need.
    "mlx_lm.generate:BatchResponse mlx_lm.models.cache:ConcatenateKVCache"
)
PLUGINS = {
    "exits": "raise SystemExit('needs torch')",
    "interrupts": "raise KeyboardInterrupt('of its own')",
    "fails": "1 / 0",
    "hooked": "from conformance.run.hookspecs import hookimpl\n"
    "@hookimpl\n"
    "def conformance_families():\n"
    "    raise KeyboardInterrupt('in a hook')\n",
}

# Modules that are imported already are no longer there, and no other copy is found.
SITE = """
import os, sys
from importlib.machinery import PathFinder

class Broken:
    names = tuple(name for name in os.environ["BROKEN"].split() if ":" not in name)
    parts = [name.split(":") for name in os.environ["BROKEN"].split() if ":" in name]

    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in self.names):
            if os.environ.get("RAISES"):
                raise RuntimeError(f"No module named {name!r} works here")
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        gone = [part for module, part in self.parts if module == name]
        return without(PathFinder.find_spec(name, path), gone) if gone else None

def without(spec, gone):
    whole = spec.loader.exec_module
    def run(module):
        whole(module)
        for name in gone:
            delattr(module, name)
    spec.loader.exec_module = run
    return spec

for loaded in list(sys.modules):
    if any(f"{loaded}.".startswith(f"{one}.") for one in Broken.names):
        del sys.modules[loaded]
sys.meta_path.insert(0, Broken())
"""

# All commands in one process, which imports the libraries once.
COMMANDS = """
import json, sys, warnings
from click.testing import CliRunner
from conformance.app.cli.main import group

def call(*words):
    done = CliRunner().invoke(group, words)
    error = done.exception
    crashed = "" if error is None or isinstance(error, SystemExit) else repr(error)
    return {"code": done.exit_code, "out": done.stdout, "err": done.stderr + crashed}

CASE = "mlx_lm/llama/ragged/float32/0"
LLAMA = ("--engine", "mlx_lm", "--family", "llama")
found = {
    "run": call("run", *LLAMA, "--scenario", "ragged", "--jobs", "1", "--json", "r.jsonl"),
    "report": call("report", "r.jsonl", "--html", "pages"),
    "show": call("show", "engines"),
    "show case": call("show", CASE),
    "explain": call("explain", CASE),
    "golden check": call("golden", "check", *LLAMA, "--jobs", "1"),
    "smoke": call("smoke", *LLAMA),
    "vlm": call("run", "--engine", "mlx_vlm", "--family", "qwen2", "--scenario", "ragged",
        "--jobs", "1"),
    "drafts": call("run", "--engine", "mlx_vlm", "--family", "lfm2", "--scenario", "speculative",
        "--tier", "quick", "--jobs", "1"),
    "other engine": call("run", "--engine", "mlx_lm_batch_generate", "--family", "llama"),
    "server": call("run", "--engine", "mlx_vlm_server", "--family", "llama"),
    "functions": call("audit", "functions", "--library", "mlx_lm", "--property", "kept: a prefix*"),
}
from conformance import assert_batching_conforms
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    results = assert_batching_conforms("llama", engine="mlx_lm", scenarios=["ragged"])
found["assert"] = {"results": len(results), "warned": [str(one.message) for one in warned]}
print(json.dumps(found), file=open("found.json", "w"))
"""


def planted(folder, plugins):
    """A folder for PYTHONPATH with what is broken, and plugins installed in it."""
    (folder / "sitecustomize.py").write_text(SITE)
    for name, text in plugins.items():
        (folder / f"{name}_plugin.py").write_text(text)
        info = folder / f"{name}_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[mlx_conformance]\n{name} = {name}_plugin\n")
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.fixture(scope="module", params=["", "RuntimeError"], ids=["missing", "raising"])
def found(request, tmp_path_factory):
    """What each command gave with all of it broken at once: it is not there, or raises."""
    folder = tmp_path_factory.mktemp("broken")
    path = planted(folder, PLUGINS)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    env |= {
        "PYTHONPATH": path,
        "BROKEN": BROKEN,
        "RAISES": request.param,
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = run_python(["-c", COMMANDS], cwd=folder, env=env, timeout=300)
    assert done.returncode == 0, done
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("run", 0, "OK: 1 case, all as expected"),
        ("vlm", 0, "OK: 1 case, all as expected"),
        ("drafts", 0, "OK: 1 case, all as expected"),  # by another drafter than the broken one
        ("report", 0, "pages"),
        ("show", 0, "mlx_vlm_batch_generate"),
        ("show case", 0, "exact"),
        ("golden check", 0, "1 goldens: 1 hold"),
        ("smoke", 0, "mlx_lm on llama: fine"),
        ("functions", 1, "No module named 'mlx_lm.models.ssm'"),
    ],
)
def test_what_needs_none_of_it_is_done(found, command, code, says):
    done = found[command]
    assert done["code"] == code, done
    assert says in done["out"]
    assert "Traceback" not in done["err"]


@pytest.mark.parametrize("command", ["run", "report", "show", "golden check", "smoke", "explain"])
def test_each_plugin_of_others_that_fails_is_named(found, command):
    said = found[command]["err"]
    assert "plugin 'exits' is left out: (exits_plugin) could not be loaded: SystemExit" in said
    assert "plugin 'interrupts' is left out: (interrupts_plugin) could not be loaded: Key" in said
    assert "plugin 'fails' is left out: (fails_plugin) could not be loaded: ZeroDiv" in said
    assert "plugin 'hooked' is used without its families: KeyboardInterrupt: in a hook" in said


def test_a_case_that_is_right_has_nothing_to_explain(found):
    assert found["explain"]["code"] == 2
    assert "nothing to explain" in found["explain"]["err"]


def test_the_assertion_plays_and_warns(found):
    assert found["assert"]["results"] == 1
    assert any("plugin 'exits' is left out" in one for one in found["assert"]["warned"])


def test_what_is_asked_for_by_name_and_left_out_ends_in_one_sentence(found):
    done = found["server"]
    assert done["code"] == 2
    assert done["err"].startswith("conformance: engine 'mlx_vlm_server' cannot be used here: ")
    assert "No module named 'mlx_vlm.server'" in done["err"]
    assert done["err"].count("\n") == 1
    assert done["out"] == ""


def test_an_engine_that_lacks_a_name_stops_no_other(found):
    done = found["other engine"]
    assert done["code"] == 2
    said = "'mlx_lm_batch_generate' cannot be used here: plugin 'mlx_lm' is used without its engine"
    assert said in done["err"]
    assert "cannot import name 'BatchResponse'" in done["err"]
    assert "BatchResponse" not in found["run"]["out"], "nobody asked for that engine"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("httpx2", "run --engine mlx_lm --family llama"),
        ("psutil", "run --engine mlx_lm --family llama"),
        ("psutil", "explain mlx_lm/llama/ragged/float32/0"),
    ],
)
def test_a_package_that_all_runs_need_ends_in_one_sentence(start, tmp_path, name, words):
    path = planted(tmp_path, {})
    done = start("-m", "conformance", *words.split(), PYTHONPATH=path, BROKEN=name)
    assert done.code == 2, done
    (said,) = (line for line in done.err.splitlines() if line.startswith("conformance: "))
    assert f"No module named {name!r}" in said
    assert "Traceback" not in done.err


def test_pytest_says_the_same(start, tmp_path):
    path = planted(tmp_path, {})
    suite = ("-m", "pytest", "--pyargs", "conformance.suite", "-p", "no:cacheprovider")
    done = start(*suite, PYTHONPATH=path, BROKEN="psutil")
    assert done.code == 4, done
    assert "ERROR: ModuleNotFoundError: No module named 'psutil'" in done.err
    assert "Traceback" not in done.err + done.out
    assert "INTERNALERROR" not in done.err + done.out
