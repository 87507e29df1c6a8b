"""Models split over processes: right as released, wrong with a fault, a lost rank a crash.

By day over two processes; three, and what a model leaves unread in the ring, are nightly.
"""

import itertools
import os
import signal

import pytest

from conformance.core.faults.declaration import Hits
from conformance.core.verdict import CaseId, Verdict
from conformance.plugins.distributed.engine import groups
from conformance.plugins.distributed.group import Group
from conformance.power.faults import registry_with_faults
from conformance.run.session import Session
from conformance.run.tiers import tier

FAULT = "mlx_lm/A9.filter-keeps-the-first-rows"
SPLIT = (
    "mlx_lm_tensor_parallel",
    "mlx_lm_pipeline",
    "mlx_lm_tensor_parallel_3",
    "mlx_lm_pipeline_3",
)


@pytest.fixture(scope="module")
def session():
    yield Session(registry_with_faults(engines=("mlx_lm", *SPLIT)), tier=tier("quick"))
    groups().discard()


@pytest.mark.parametrize(
    "engine",
    [pytest.param(e, marks=[pytest.mark.nightly] * e.endswith("_3")) for e in SPLIT],
)
def test_a_batch_in_a_group_gives_what_one_process_gives_alone(session, engine):
    result = session.run(CaseId(engine, "qwen2", "early_finish", "float32", 0))
    assert result.verdict is Verdict.EXACT, result.evidence


def test_a_fault_in_the_ranks_is_caught_and_counts_its_effects(session):
    fault, hits = session.registry.faults[FAULT], Hits()
    case = CaseId("mlx_lm_tensor_parallel", "qwen2", "early_finish", "float32", 0)
    result = session.run(case, around=lambda _: fault.inject(hits))
    assert not result.verdict.good
    assert hits.count > 0


def test_a_rank_that_ends_in_mid_run_is_a_crash_and_the_next_case_has_a_new_group(
    session, monkeypatch
):
    right, steps = Group.call, itertools.count()

    def call(self, asked):
        if asked.args[:1] == ("step",) and next(steps) == 3:
            os.kill(self.pids[1], signal.SIGKILL)
        return right(self, asked)

    monkeypatch.setattr(Group, "call", call)
    case = CaseId("mlx_lm_tensor_parallel", "qwen2", "batch_of_one", "float32", 0)
    result = session.run(case)
    assert result.verdict is Verdict.CRASH
    assert "rank 1 of 2 ended" in result.evidence[0].what
    assert session.run(case).verdict is Verdict.EXACT


@pytest.mark.nightly
def test_what_a_model_leaves_in_the_ring_does_not_reach_the_next_case(session):
    def played(family):
        return session.run(CaseId("mlx_lm_pipeline", family, "batch_of_one", "float32", 0))

    left = played("prism_hadamard_qwen35")  # reads half of what is sent
    assert left.verdict not in (Verdict.EXACT, Verdict.CRASH), left.evidence
    assert played("qwen2").verdict is Verdict.EXACT
