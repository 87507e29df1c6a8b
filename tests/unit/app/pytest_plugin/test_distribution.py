"""The order in which work is given out, and workers that end without having done theirs."""

from types import SimpleNamespace

from xdist.scheduler import LoadGroupScheduling, loadscope

from conformance.app.pytest_plugin.distribution import FamilyScheduling
from conformance.app.pytest_plugin.options import GOLDEN_NODE, SUITE_NODE
from conformance.run.family_seconds import FamilySeconds


class Node:
    gateway = SimpleNamespace(id="gw0")
    shutting_down = False

    def __init__(self):
        self.given = []

    def send_runtest_some(self, indices):
        self.given += indices

    def shutdown(self):
        self.shutting_down = True


def scheduling_of(monkeypatch, seconds, workers):
    """A real scheduler with these workers, and families that each have three cases."""
    monkeypatch.setattr(loadscope, "parse_tx_spec_config", lambda config: workers)
    config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False))
    setup = SimpleNamespace(seconds=FamilySeconds(seconds), group_of=lambda case: case.family)
    scheduling = FamilyScheduling(config, None, setup, lambda worker: False)
    cases = [f"{SUITE_NODE}::e/{family}/{s}/float32/0" for family in FAMILIES for s in "abc"]
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, cases)
    return scheduling, cases


FAMILIES = ("short", "new", "long", "middling", "shortest")
SECONDS = {"shortest": 1.0, "short": 2.0, "middling": 40.0, "long": 90.0}


def played(scheduling, cases, workers):
    """Let the workers do all their work in turn; the families in the order they were given out."""
    scheduling.schedule()
    done, order = dict.fromkeys(workers, 0), []
    while any(done[worker] < len(worker.given) for worker in workers):
        for worker in workers:
            for index in worker.given[done[worker] :]:
                family = cases[index].split("/")[-4]
                order += [family] if family not in order else []
            if done[worker] < len(worker.given):
                done[worker] += 1
                scheduling.mark_test_complete(worker, worker.given[done[worker] - 1])
    return order


def test_the_longest_family_is_given_out_first_and_the_shortest_last(monkeypatch):
    workers = [Node(), Node()]
    order = played(*scheduling_of(monkeypatch, SECONDS, workers), workers)
    assert order == ["long", "middling", "new", "short", "shortest"], "new: the median, 21 s"
    assert all(worker.shutting_down for worker in workers)
    assert sorted(workers[0].given + workers[1].given) == list(range(15))


def test_without_recorded_seconds_families_keep_their_order(monkeypatch):
    workers = [Node(), Node()]
    assert played(*scheduling_of(monkeypatch, {}, workers), workers) == list(FAMILIES)


def test_what_a_crashed_worker_left_of_a_family_counts_by_its_part(monkeypatch):
    scheduling, _ = scheduling_of(monkeypatch, SECONDS, [Node()])
    scheduling.workqueue["long"] = {"done": True, "also": True, "left": False}
    scheduling.workqueue["middling"] = dict.fromkeys("abc", False)
    assert scheduling._seconds_left("long") == 30.0
    assert scheduling._seconds_left("middling") == 40.0


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


def test_work_for_a_worker_that_has_just_ended_is_done_by_the_others(monkeypatch):
    class Ended(Node):
        def send_runtest_some(self, indices):
            raise OSError("cannot send (already closed?)")

    ended, other = Ended(), Node()
    scheduling, cases = scheduling_of(monkeypatch, SECONDS, [ended, other])
    scheduling.schedule()
    crashed = scheduling.remove_node(ended)
    assert crashed == cases[6], "the first of the longest family"
    played(scheduling, cases, [other])
    assert sorted([6, *other.given]) == list(range(15))


def test_a_golden_goes_where_its_familys_cases_go():
    scheduling = FamilyScheduling.__new__(FamilyScheduling)
    assert scheduling._split_scope(f"{GOLDEN_NODE}::golden[mlx_lm/llama]") == "mlx_lm/llama"
    assert scheduling._split_scope("tests/test_own.py::test_it") == "tests/test_own.py::test_it"
