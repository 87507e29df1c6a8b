"""Servers are kept for the next schedule, a few of them, and ended with the process."""

import os

import pytest

from conformance.plugins.servers import pool
from conformance.plugins.servers.pool import KEPT, Pool


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
    monkeypatch.setattr(pool.os, "getpid", os.getppid)
    assert servers.get("a", Server) is not first
    assert first.stops == 0
