"""Servers are awaited, read and ended, however the process that started them ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from started_processes import gone, marked

from conformance.plugins.servers import process
from conformance.plugins.servers.process import (
    KEPT,
    Pool,
    ServerError,
    last_line,
    last_traceback,
    start,
)

ROOT = Path(__file__).parents[4]
# Answers at /health; starts a process of its own, which must go, too.
SMALL = """
import http.server, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # mark {mark}"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def command(text):
    return lambda _, port: [sys.executable, "-c", text, str(port)]


def begin(text, **options):
    return start(
        lambda _: None, command(text), environment=dict(os.environ), health="/health", **options
    )


def test_a_server_and_what_it_started_are_ended():
    server = begin(SMALL.format(mark="stopped"))
    assert server.code is None
    assert marked("stopped")
    server.stop()
    assert gone("stopped")
    assert not server.folder.exists()
    server.stop()


STARTER = """
import os, sys, time
sys.path.insert(0, {root!r})
from conformance.plugins.servers.process import start
text = {text!r}
start(lambda _: None, lambda _, port: [sys.executable, "-c", text, str(port)],
      environment=dict(os.environ), health="/health")
print("ready", flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("number", "then"),
    [
        (signal.SIGINT, "time.sleep(600)"),
        (signal.SIGTERM, "time.sleep(600)"),
        (signal.SIGKILL, "time.sleep(600)"),
        (None, "os._exit(1)"),
        (None, "os.abort()"),
        (None, "raise SystemExit"),
    ],
    ids=["SIGINT", "SIGTERM", "SIGKILL", "exit", "abort", "end"],
)
def test_no_process_is_left_however_the_starter_ends(number, then):
    mark = f"left-{number}-{len(then)}"
    text = STARTER.format(root=str(ROOT), text=SMALL.format(mark=mark), then=then)
    starter = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert starter.stdout.readline() == b"ready\n"
    if number is not None:
        assert marked(mark)
        starter.send_signal(number)
    starter.wait(10)
    assert gone(mark)


def test_a_server_that_ends_at_once_is_one_sentence():
    with pytest.raises(ServerError, match=r"exit code 3 before it answered: no tokenizer"):
        begin("import sys; print('no tokenizer', file=sys.stderr); sys.exit(3)")


def test_a_server_that_never_answers_is_one_sentence():
    with pytest.raises(ServerError, match=r"did not answer at http.* within 8 s: loading"):
        begin("import time; print('loading', flush=True); time.sleep(60)", seconds=8.0)


def test_a_checkpoint_that_cannot_be_written_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(process.tempfile, "mkdtemp", lambda **_: str(tmp_path))

    def write(_):
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        start(write, command(""), environment={}, health="/")
    assert not tmp_path.exists()


def test_ctrl_c_while_its_process_begins_leaves_no_folder(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(process, "_begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin("")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_left_to_who_has_it(monkeypatch):
    ports = iter((1, 1, 2))
    text = "import sys; sys.exit('[Errno 98] Address already in use')"
    taken = []
    monkeypatch.setattr(process, "free_port", lambda: taken.append(next(ports)) or taken[-1])
    with pytest.raises(ServerError, match="Address already in use"):
        begin(text)
    assert taken == [1, 1, 2]


def test_logs_are_read_from_their_end():
    log = 'a\nTraceback (most recent call last):\n  File "/x/mlx_lm/server.py", line 7, in run\n'
    log += "    go()\nTypeError: no int\n\nINFO more\n\n"
    assert last_line(log) == "INFO more"
    assert last_traceback(log) == "TypeError: no int [x/mlx_lm/server.py:7 in run]"
    assert last_traceback("fine") == ""
    assert last_line(" \n") == "its log is empty"


class Server:
    def __init__(self):
        self.code, self.stops = None, 0

    def stop(self):
        self.stops += 1


@pytest.fixture
def servers():
    made = Pool()
    yield made
    made.close()


def test_a_server_is_started_once(servers):
    first = servers.get("a", Server)
    assert servers.get("a", Server) is first
    servers.discard("a")
    assert first.stops == 1
    assert servers.get("a", Server) is not first


def test_one_that_ended_is_started_again(servers):
    first = servers.get("a", Server)
    first.code = 1
    assert servers.get("a", Server) is not first
    assert first.stops == 1


def test_few_are_kept(servers):
    first, *others = (servers.get(key, Server) for key in range(KEPT + 1))
    assert first.stops == 1
    assert not any(other.stops for other in others)


def test_a_fork_leaves_its_parents_servers_alone(servers, monkeypatch):
    first = servers.get("a", Server)
    monkeypatch.setattr(process.os, "getpid", os.getppid)
    assert servers.get("a", Server) is not first
    assert first.stops == 0


def test_the_exception_that_ended_a_thread_is_named():
    trace = 'Traceback (most recent call last):\n  File "/a/server.py", line {}, in f\n{}\n'
    later = trace.format(5, "RuntimeError: generation thread has ended")
    log = trace.format(3, "KeyError: 'uid'") + later + later
    assert last_traceback(log).startswith("KeyError: 'uid' [")
    assert "IndexError" in last_traceback(log + trace.format(7, "IndexError: 2"))
