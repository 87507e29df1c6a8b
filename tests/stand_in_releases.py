"""Releases of mlx-lm without code, in a wheelhouse, and a stand-in for this project beside them."""

import base64
import hashlib
import zipfile

import msgspec
from click.testing import CliRunner
from results_by_hand import make_result

from conformance.app.cli.main import group
from conformance.core.errors import ReleaseError
from conformance.core.verdict import Finding, ScheduleResult, Verdict
from conformance.tools.releases import environments, pins

CASE = "mlx_lm/llama/ragged/float32/0"
# Stands for this project in an environment: right from mlx-lm 0.31.3 on, broken in 0.32.0 and
# killed in 0.31.1.
MAIN = """
import importlib.metadata, json, os, pathlib, shutil, sys, time
version = importlib.metadata.version("mlx-lm")
if "caches" in sys.argv:
    line = {"class": "mlx_lm.BatchKVCache", "verdict": "known", "methods": ["merge"]}
    if version > "0.31.2":
        line["methods"] += ["prepare"]
    wrong = {"signature": "merge, contents: row #", "text": "contents: row 1", "steps": ["merge"]}
    line["differences"] = [wrong] if version < "0.31.2" else []
    pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(line))
    sys.exit(1)
if version == "0.31.1" and "killed" in sys.argv:
    print("2 cases", flush=True)
    os.kill(os.getpid(), 11)
if version == "0.32.0":
    sys.exit("conformance: plugin 'mlx_lm' could not be loaded")
if "lock" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text("[]")
    sys.exit()
if "explain" in sys.argv:
    sys.exit("conformance: nothing to explain")
if "hangs" in sys.argv:
    target = pathlib.Path(sys.argv[sys.argv.index("--json") + 1])
    header = json.dumps({"record": "run", "planned": 2, "schema": 1}) + chr(10)
    found = (pathlib.Path(__file__).parent / "wrong").read_text()
    target.with_name(target.name + ".partial").write_text(header + found)
    time.sleep(600)
answer = "wrong" if version < "0.31.3" else "right"
target = sys.argv[sys.argv.index("--json") + 1]
shutil.copy(pathlib.Path(__file__).parent / answer, target)
if "lingers" in sys.argv:
    time.sleep(600)
sys.exit(answer == "wrong")
"""


def wheel(folder, name, version, code=None):
    """A distribution with these files, by default none."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Provides-Extra: cpu\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        **(code or {}),
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(path, text)


def _digest(text):
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def result(verdict):
    return make_result(
        CASE,
        verdict,
        evidence=(Finding(verdict, "free", "token 3 is 6", schedule="ragged"),),
        schedules=(ScheduleResult("ragged", verdict),),
        versions={},
    )


def code_of(version):
    """The library's files: 0.31.3 changes llama alone, and 0.32.0 has no gemma."""
    new = version > "0.31.2"
    models = {
        "cache": "class KVCache:\n    pass\n",
        "llama": f"from .cache import KVCache\n\n\ndef mask(x):\n    return x[{int(new)}:]\n",
        "gemma": "def mask(x):\n    return x\n",
    }
    if version == "0.32.0":
        del models["gemma"]
    files = {f"mlx_lm/models/{name}.py": text for name, text in models.items()}
    moved = "# a comment\n" if new else ""
    return {
        **files,
        "mlx_lm/__init__.py": "",
        "mlx_lm/generate.py": f"{moved}def step():\n    pass\n",
    }


def command_on_stand_ins(tmp_path, monkeypatch, *words):
    """A command with these first words, on a wheelhouse and a stand-in for this project."""
    project, variables = stand_ins(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def not_reached(release):
        raise ReleaseError(f"the index has nothing of {release}")

    monkeypatch.setattr(environments, "needs", lambda without: ())
    monkeypatch.setattr(environments, "unpack", lambda folder, plugins: project)
    monkeypatch.setattr(pins, "uploaded", not_reached)
    options = ["--cache-dir", str(tmp_path / "cache")]
    return lambda *arguments: CliRunner().invoke(group, [*words, *arguments, *options])


def stand_ins(folder):
    """The folder of the stand-in, and the variables of processes that install releases."""
    house, project = folder / "wheelhouse", folder / "project"
    house.mkdir()
    (project / "conformance").mkdir(parents=True)
    for version in ("0.31.1", "0.31.2", "0.31.3", "0.32.0"):
        wheel(house, "mlx-lm", version, code_of(version))
    for version in ("0.31.1", "0.31.2", "0.32.2"):
        wheel(house, "mlx", version)
    wheel(house, "transformers", "5.23.0")
    (project / "conformance" / "__main__.py").write_text(MAIN)
    for name, verdict in (("right", Verdict.EXACT), ("wrong", Verdict.DIVERGED)):
        text = msgspec.json.encode(result(verdict)).decode()
        (project / "conformance" / name).write_text(text + "\n")
    # What uv keeps of real downloads it would use without the network, too.
    variables = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "uv")}
    for tool in ("PIP", "UV"):
        variables |= {f"{tool}_NO_INDEX": "1", f"{tool}_FIND_LINKS": str(house)}
    return project, variables
