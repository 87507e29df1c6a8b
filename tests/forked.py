"""Runs Python programs in processes forked from one that has already imported what they need.

To start Python and import mlx, transformers and pytest takes seconds; a fork of a process that has
done so takes milliseconds. There are two to fork from. One has all that this package's registry
needs, the libraries too; the other leaves these and this package to the program, which imports them
from where it looks for them: a checkout, or a copy that a test has changed. mlx has started no
thread in either. Where a test is about how a process starts, it starts one: ``start_python``. Only
on Linux: on macOS forking after imports is unsafe.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

FORKS = sys.platform == "linux"
_MODULES = (
    *("mlx.nn", "numpy", "requests", "safetensors", "PIL.Image", "pytest", "hypothesis", "click"),
    *("rich.console", "rich.progress", "rich.table", "jinja2", "msgspec", "psutil", "httpx2"),
)
# How Python reads and writes is settled when it starts.
_AT_START = {"PYTHONIOENCODING", "PYTHONUTF8", "PYTHONCOERCECLOCALE"}
# transformers imports a class's module when it is asked for the class.
_CLASSES = ("AutoTokenizer", "PreTrainedTokenizerFast")
ROOT = Path(__file__).parents[1]
# What a program may have from elsewhere, where it is in its folder or an option names it.
_OURS = ("conformance", "mlx", "mlx_lm", "mlx_vlm")
_ELSEWHERE = ("--library-path", "releases")
# A program that prints what it has imported of all that any command on the registry needs.
_PROBE = """
import sys
from conformance.app.cli import main
from conformance.app.cli.main import group
from conformance.app import pytest_plugin
from conformance.run.registry import build_registry
build_registry()
print(*sys.modules)
"""


def run_python(arguments, *, cwd, env, timeout):
    """As ``subprocess.run`` of this Python with these arguments: its exit code and its output.

    Raises:
        subprocess.TimeoutExpired: it takes longer; it is ended.
    """
    arguments = [str(argument) for argument in arguments]
    # An option of the interpreter needs one; pytest wants to import its plugins itself.
    option = arguments[0].startswith("-") and arguments[0] not in ("-c", "-m")
    if not FORKS or option or _AT_START & env.keys() or arguments[:2] == ["-m", "pytest"]:
        return start_python(arguments, cwd=cwd, env=env, timeout=timeout)
    with tempfile.TemporaryDirectory() as folder:
        out, err = (str(Path(folder, name)) for name in ("out", "err"))
        call = {"arguments": arguments, "cwd": str(cwd), "env": env, "out": out, "err": err}
        code = _server(_as_installed(arguments, cwd, env)).call({**call, "timeout": timeout})
        texts = [Path(file).read_bytes().decode() for file in (out, err)]
    if code is None:
        raise subprocess.TimeoutExpired(arguments, timeout, *texts)
    return subprocess.CompletedProcess(arguments, code, *texts)


def start_python(arguments, *, cwd, env, timeout):
    """The same in a Python of its own."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=env,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )


def _as_installed(arguments, cwd, env):
    """Whether the program is one of this package's, which finds all modules where they are here."""
    command = arguments[0] == "-c" and "conformance.app.cli import main" in arguments[1]
    paths = {Path(path) for path in env.get("PYTHONPATH", "").split(os.pathsep) if path}
    return (
        (command or arguments[:2] == ["-m", "conformance"])
        and paths <= {ROOT, ROOT / "tests/toy"}
        and not any(Path(cwd, name).exists() for name in _OURS)
        and not any(argument.startswith(_ELSEWHERE) for argument in arguments)
    )


@functools.cache
def _server(as_installed):
    return Server(as_installed)


class Server:
    """The process that is forked; one or two for each process of tests."""

    def __init__(self, as_installed):
        # Its own output goes nowhere that a test reads.
        self._process = subprocess.Popen(
            [sys.executable, __file__, *(["all"] if as_installed else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))},
        )
        self._turn = threading.Lock()
        atexit.register(self.close)

    def call(self, what):
        """The exit code of one program; ``None`` if it took too long."""
        with self._turn:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self):
        """End it."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def serve():
    """Fork for each line of the input, and print how that ended."""
    for name in _MODULES:
        importlib.import_module(name)
    for name in _CLASSES:
        getattr(importlib.import_module("transformers"), name)
    if sys.argv[1:]:
        _import_all()
    gc.freeze()  # else each fork would copy the pages of all that is there as it looks for garbage
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        what = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(what)
        answers.write(json.dumps(_wait(child, what["timeout"])) + "\n")
        answers.flush()


def _import_all():
    """What a registry needs, without making one, as parts of it are kept."""
    # A child ends as Python does, and would remove a TemporaryDirectory of this process.
    folder = Path(tempfile.mkdtemp())
    out, err = folder / "out", folder / "err"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = {"arguments": ["-c", _PROBE], "cwd": str(folder), "env": environment}
    child = os.fork()
    if child == 0:
        _become({**call, "out": str(out), "err": str(err)})
    assert _wait(child, 300) == 0, err.read_text(encoding="utf-8")
    names = out.read_text(encoding="utf-8").splitlines()[-1].split()
    shutil.rmtree(folder)
    sys.path.insert(0, str(ROOT))
    for name in names:
        if name not in ("sitecustomize", "__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    # Files that are parsed once are known in each fork by their text.
    importlib.import_module("conformance.checks.expectations.loading").load_expectations()
    sys.path.remove(str(ROOT))


def _wait(child, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def _become(what):
    """Turn this process into the program, and end it as Python would."""
    for number, file in ((1, what["out"]), (2, what["err"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=False)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.environ.clear()
    os.environ.update(what["env"])
    os.chdir(what["cwd"])
    code = 1
    try:
        code = _exit_code(what["arguments"])
    finally:
        with contextlib.suppress(Exception):
            threading._shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _exit_code(arguments):
    try:
        _run(arguments)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
        return 1
    return 0


def _run(arguments):
    kind, rest = arguments[0], arguments[1:]
    script = kind not in ("-c", "-m")
    first = str(Path(kind).resolve().parent) if script else ""
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    # The first is the folder of this file.
    sys.path[:] = [*([] if os.environ.get("PYTHONSAFEPATH") else [first]), *more, *sys.path[1:]]
    importlib.invalidate_caches()
    if any(Path(path, "sitecustomize.py").is_file() for path in more):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    if script:
        sys.argv[:] = arguments
        runpy.run_path(kind, run_name="__main__")
    elif kind == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    serve()
