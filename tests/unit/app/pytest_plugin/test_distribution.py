"""Workers that end without having done their work."""

from types import SimpleNamespace

from xdist.scheduler import LoadGroupScheduling

from conformance.app.pytest_plugin.distribution import FamilyScheduling
from conformance.app.pytest_plugin.nodeids import GOLDEN_NODE


class Node:
    gateway = SimpleNamespace(id="gw0")


def removed(monkeypatch, node, queue=(), retired=()):
    """What the scheduler returns for a worker with one item done and one not; and what it calls."""
    calls = []
    session = SimpleNamespace(
        handle_crashitem=lambda item, worker: calls.append(item),
        _clone_node=lambda worker: calls.append("another worker"),
    )
    scheduling = FamilyScheduling.__new__(FamilyScheduling)
    scheduling.config = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin=lambda name: session)
    )
    scheduling._retired = lambda worker: worker in retired
    scheduling.workqueue = dict.fromkeys(queue)
    scheduling.assigned_work = {node: {"family": {"done": True, "begun": False, "next": False}}}
    monkeypatch.setattr(LoadGroupScheduling, "remove_node", lambda self, node: None)
    return scheduling.remove_node(node), calls, scheduling.assigned_work[node]


def test_what_a_crashed_worker_ran_is_over_and_the_rest_is_not(monkeypatch):
    crashed, calls, left = removed(monkeypatch, Node())
    assert crashed == "begun"
    assert calls == []
    assert left == {"family": {"done": True, "begun": True, "next": False}}


def test_a_worker_that_says_it_finished_has_crashed_in_what_it_left(monkeypatch):
    node = Node()
    node.workeroutput = {"exitstatus": 0}
    crashed, calls, _ = removed(monkeypatch, node)
    assert crashed is None
    assert calls == ["begun"]


def test_a_worker_that_retired_has_not_crashed(monkeypatch):
    node = Node()
    crashed, calls, left = removed(monkeypatch, node, retired=[node])
    assert crashed is None
    assert calls == []
    assert left == {"family": {"done": True, "begun": True, "next": False}}, (
        "it had reported its result"
    )


def test_another_takes_its_place_where_work_is_left(monkeypatch):
    node = Node()
    node.workeroutput = {"exitstatus": 0}
    _, calls, _ = removed(monkeypatch, node, queue=["family"])
    assert calls == ["begun", "another worker"]


def test_a_worker_that_has_not_calls_its_items_is_given_none(monkeypatch):
    given = []
    monkeypatch.setattr(LoadGroupScheduling, "_reschedule", lambda self, node: given.append(node))
    scheduling = FamilyScheduling.__new__(FamilyScheduling)
    scheduling.registered_collections = {"ready": ["item"]}
    for node in ("new", "ready"):
        scheduling._reschedule(node)
    assert given == ["ready"]


def test_a_golden_goes_where_its_familys_cases_go():
    scheduling = FamilyScheduling.__new__(FamilyScheduling)
    assert scheduling._split_scope(f"{GOLDEN_NODE}::golden[mlx_lm/llama]") == "mlx_lm/llama"
    assert scheduling._split_scope("tests/test_own.py::test_it") == "tests/test_own.py::test_it"
