"""What requests leave behind is found by its kind, of one engine and of many."""

import os
import threading
from fractions import Fraction
from pathlib import Path

import mlx.core as mx
import pytest
from miniatures.library import subject
from miniatures.weighing import Weighs

from conformance.core.schedule import CYCLES, Stage
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.runner import play
from conformance.scenarios.workloads.traffic_leaves import TRAFFIC_LEAVES


@pytest.fixture(scope="module")
def toy():
    return subject()


KEPT_FOR_EVER = []


class KeepsTheRemoved(Weighs):
    """An array of each removed row stays with the engine."""

    def remove(self, request_ids):
        self.removed = [*getattr(self, "removed", ()), *(mx.ones(64) for _ in request_ids)]
        mx.eval(self.removed)
        super().remove(request_ids)


class KeepsOnesOfEngines(Weighs):
    """Something of each engine stays when it is closed."""

    def close(self):
        KEPT_FOR_EVER.append(Fraction(1, 3))
        super().close()


class OpensFiles(Weighs):
    """Opens a file for each row that is removed from the queue."""

    def remove(self, request_ids):
        if any(row.name in request_ids for row in self.queue):
            KEPT_FOR_EVER.append(Path(os.devnull).open())  # noqa: SIM115
        super().remove(request_ids)


class StartsThreads(Weighs):
    """Each engine has a thread that never ends, which the interpreter does not wait for."""

    def __init__(self, model, options):
        super().__init__(model, options)
        end = threading.Event()
        KEPT_FOR_EVER.append(end)
        threading.Thread(target=end.wait, daemon=True).start()


def closed(kept):
    for each in kept:
        end = getattr(each, "close", None) or getattr(each, "set", None)
        if end:
            end()
    kept.clear()


@pytest.mark.parametrize(
    ("engine", "where", "what"),
    [
        (Weighs, set(), ""),
        (KeepsTheRemoved, {"again"}, "bytes of arrays"),
        (KeepsOnesOfEngines, {"renewed"}, "objects of fractions.Fraction"),
        (OpensFiles, {"renewed", "again"}, "open files"),
        (StartsThreads, {"renewed"}, "threads"),
    ],
)
def test_what_requests_leave_is_found_by_kind(toy, engine, where, what):
    made = TRAFFIC_LEAVES.make(brief_for(toy, engine, 0))
    try:
        found = judge_batched(toy, engine, TRAFFIC_LEAVES, made).findings
    finally:
        closed(KEPT_FOR_EVER)
    assert {finding.schedule for finding in found} == where
    assert all(what in finding.what for finding in found)


def test_requests_leave_in_each_stage_and_the_engine_is_idle_in_between(toy):
    made = TRAFFIC_LEAVES.make(brief_for(toy, Weighs, 0))
    for schedule in made:
        trace = play(Weighs, toy.model, schedule, meter=[])
        stages = {stage for step in trace.steps for stage in step.removed_from.values()}
        assert stages == {Stage.QUEUED, Stage.PREFILL, Stage.DECODE}
        assert len(trace.left) == CYCLES
        assert trace.missed == ()


def test_a_run_that_fails_is_the_last(toy):
    made = []

    class Fails(Weighs):
        def __init__(self, model, options):
            super().__init__(model, options)
            made.append(1)

        def step(self):
            raise ValueError("no")

    (renewed,) = (s for s in TRAFFIC_LEAVES.make(brief_for(toy, Weighs, 0)) if s.name == "renewed")
    assert play(Fails, toy.model, renewed, meter=[]).failure is not None
    assert len(made) == 1
