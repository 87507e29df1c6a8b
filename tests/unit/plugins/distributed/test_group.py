"""Processes of a group: started, asked, and ended in every way."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from started_processes import ends

from conformance.plugins.distributed.group import Group, GroupError, free_ports
from conformance.plugins.distributed.messages import TENSOR, Call

HELD = """
import time
from conformance.plugins.distributed.group import Group
print(*Group(2, "tensor").pids, flush=True)
time.sleep(600)
"""


def test_ports_are_different():
    assert len(set(free_ports(3))) == 3


def test_a_rank_that_is_killed_ends_the_group_and_is_named():
    group = Group(2, TENSOR)
    pids = group.pids
    try:
        replies = group.call(Call("ask", ("stages",)))  # of no engine
        assert [reply.failure.type_name for reply in replies] == ["AssertionError"] * 2
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(GroupError, match=r"rank 1 of 2 ended in close, signal SIGKILL"):
            group.call(Call("close"))
    finally:
        group.close()
    assert not any(map(psutil.pid_exists, pids))
    assert not group.folder.exists()


def test_the_processes_end_with_the_one_that_started_them():
    owner = subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    assert all(map(ends, pids))
