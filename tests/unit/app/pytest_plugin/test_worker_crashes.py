"""What is left of a worker that crashed, in one line."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from conformance.app.pytest_plugin.worker_crashes import (
    CrashFiles,
    condense,
    exit_of,
)

SEGFAULT = """\
Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/v/site-packages/execnet/gateway_base.py", line 534 in read

Current thread 0x00007f0000000002 (most recent call first):
  File "/v/site-packages/mlx_lm/models/cache.py", line 33 in update
  File "/v/site-packages/pluggy/_manager.py", line 183 in _hookexec
"""

TIMEOUT = """\
Timeout (0:00:03)!
Thread 0x00007f0000000001 (most recent call first):
  File "/v/site-packages/execnet/gateway_base.py", line 534 in read

Thread 0x00007f0000000002 (most recent call first):
  File "/v/site-packages/mlx_lm/generate.py", line 7 in step
"""


@pytest.mark.parametrize(
    ("dump", "line"),
    [
        (SEGFAULT, "Segmentation fault in mlx_lm/models/cache.py:33, update"),
        (TIMEOUT, "Timeout (0:00:03) in site-packages/mlx_lm/generate.py:7, step"),
        ("Fatal Python error: Aborted\n", "Aborted"),
        ("", ""),
    ],
)
def test_the_fault_and_the_frame_of_the_thread_that_ran(dump, line):
    assert condense(dump) == line


class Node:
    def __init__(self, name):
        self.gateway = type("Gateway", (), {"id": name})
        self.workerinput = {}


def test_each_worker_has_a_file_of_its_own(tmp_path):
    files, nodes = CrashFiles(), [Node("gw0"), Node("gw1")]
    for node in nodes:
        files.assign(node)
    (path,) = nodes[1].workerinput.values()
    with open(path, "w") as file:  # noqa: PTH123
        file.write(SEGFAULT)
    assert files.summary("gw0") == ""
    assert files.summary("gw1").startswith("Segmentation fault")
    files.close()
    assert files.summary("gw1") == ""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("import os; os._exit(3)", "exit status 3"),
    ],
)
def test_how_a_worker_ended_is_read_off_its_process(code, text):
    node = Node("gw0")
    node.gateway._io = SimpleNamespace(popen=subprocess.Popen([sys.executable, "-c", code]))
    assert exit_of(node) == text


def test_the_exit_of_a_worker_on_another_machine_is_not_known():
    assert exit_of(Node("gw0")) == ""
