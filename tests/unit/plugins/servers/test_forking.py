"""Servers that are forks run as modules do, and end with the process that asked for them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from started_processes import gone, marked

from conformance.plugins.servers.forking import Forked, Host, _hosts, host_of
from conformance.plugins.servers.process import ServerError, start

ROOT = Path(__file__).parents[4]
# Answers at /health; starts a process of its own, which must go, too.
SMALL = """
import http.server, os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # mark {mark}"])
print(__name__, os.getcwd(), os.environ["OWN"], sys.argv[1:], "json" in sys.modules)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STARTER = """
import os, sys, time
sys.path.insert(0, {root!r})
from conformance.plugins.servers.process import start
write = lambda folder: (folder / "small.py").write_text({text!r})
command = lambda _, port: [sys.executable, "-m", "small", str(port)]
environment = {{**os.environ, "OWN": "1", "PYTHONPATH": {root!r}}}
start(write, command, environment=environment, health="/health", imported=("json",))
print("ready", flush=True)
{then}
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are safe on Linux alone")


@pytest.fixture(autouse=True, scope="module")
def _no_host_is_left():
    yield
    for host in _hosts().values():
        host.close()
    _hosts.cache_clear()


def begin(text, **options):
    return start(
        lambda folder: (folder / "small.py").write_text(text, encoding="utf-8"),
        lambda _, port: [sys.executable, "-m", "small", str(port)],
        environment={**os.environ, "OWN": "own", "PYTHONPATH": str(ROOT)},
        health="/health",
        **{"imported": ("json",), **options},
    )


def test_where_python_looks_first_stays_the_users_own(tmp_path):
    (tmp_path / "small.py").write_text(SMALL.format(mark="first"), encoding="utf-8")
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    server = start(
        lambda _: None,
        lambda _, port: [sys.executable, "-m", "small", str(port)],
        environment={**os.environ, "OWN": "", "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        health="/health",
        imported=("csv",),
    )
    assert "__main__" in server.log()
    server.stop()


def test_a_fork_is_the_module_as_python_runs_it_and_is_ended():
    server = begin(SMALL.format(mark="forked"))
    assert isinstance(server._process, Forked)
    port = server.url.rpartition(":")[2]
    said, *_ = server.log().splitlines()
    assert said.split() == ["__main__", str(server.folder), "own", f"['{port}']", "True"]
    assert server.code is None
    assert server.memory() > 0
    assert marked("forked")
    server.stop()
    assert gone("forked")
    assert server.code is not None
    assert not server.folder.exists()
    server.stop()


@pytest.mark.parametrize("imported", [("json",), ()], ids=["forked", "started"])
def test_a_compiler_of_a_server_that_is_ended_removes_its_file(tmp_path, imported):
    kept = tmp_path / "made.s"
    compiler = (
        "import pathlib, signal, sys, time; made = pathlib.Path(sys.argv[1]); "
        "signal.signal(signal.SIGTERM, lambda *_: (made.unlink(), sys.exit())); "
        "made.touch(); time.sleep(600)  # {mark}"
    )
    text = SMALL.replace("import time; time.sleep(600)  # mark {mark}", compiler)
    text = text.replace(f'"{compiler}"', f'"{compiler}", {str(kept)!r}')
    server = begin(text.format(mark="compiles"), imported=imported)
    until = time.monotonic() + 30
    while not kept.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert kept.exists()
    server.stop()
    assert not kept.exists()
    assert gone("compiles")


@pytest.mark.parametrize(
    ("number", "then"),
    [
        (signal.SIGINT, "time.sleep(600)"),
        (signal.SIGTERM, "time.sleep(600)"),
        (signal.SIGKILL, "time.sleep(600)"),
        (None, "os._exit(1)"),
        (None, "raise SystemExit"),
    ],
    ids=["SIGINT", "SIGTERM", "SIGKILL", "exit", "end"],
)
def test_no_fork_is_left_however_the_starter_ends(number, then):
    mark = f"fork-left-{number}-{len(then)}"
    text = STARTER.format(root=str(ROOT), text=SMALL.format(mark=mark), then=then)
    starter = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert starter.stdout.readline() == b"ready\n"
    if number is not None:
        assert marked(mark)
        starter.send_signal(number)
    starter.wait(60)
    assert gone(mark)


def test_the_exit_code_and_the_last_line_of_a_fork_are_known():
    with pytest.raises(ServerError, match=r"exit code 3 before it answered: no tokenizer"):
        begin("import sys; print('no tokenizer', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ServerError, match=r"exit code 1 before it answered: no tokenizer"):
        begin("import sys; sys.exit('no tokenizer')")
    with pytest.raises(ServerError, match=r"exit code 1 before it answered: KeyError: 'x'"):
        begin("{}['x']")


def test_a_fork_that_is_killed_has_ended(tmp_path):
    (tmp_path / "small.py").write_text("import time; time.sleep(600)", encoding="utf-8")
    host = host_of(("json",), os.environ)
    forked = host.fork(["small"], tmp_path, tmp_path / "log", os.environ)
    assert forked.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    forked.kill()
    assert forked.wait(60) == -signal.SIGKILL
    assert forked.poll() == -signal.SIGKILL


def test_one_host_forks_all_and_another_is_made_once_it_has_ended():
    host = host_of(("json",), os.environ)
    assert host_of(("json",), os.environ) is host
    host.close()
    assert host_of(("json",), os.environ) is not host


def test_where_nothing_can_be_imported_ahead_a_server_is_started_anew(tmp_path):
    assert host_of((), os.environ) is None
    host = Host(("no_such_module_of_a_server",), os.environ)
    with pytest.raises(OSError, match=r"ended|Broken pipe|reset"):
        host.fork(["small"], tmp_path, tmp_path / "log", os.environ)
    server = begin(SMALL.format(mark="anew"), imported=("no_such_module_of_a_server",))
    assert server.code is None
    server.stop()
    assert gone("anew")
