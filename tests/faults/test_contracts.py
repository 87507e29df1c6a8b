"""Each contract of what work costs is broken by a fault in a library, and kept without it."""

from functools import cache

import pytest

from conformance.core.contracts import contracts
from conformance.core.faults import Hits
from conformance.core.verdict import CaseId
from conformance.run.registry import build_registry
from conformance.run.session import Session

BROKEN_BY = {
    "positions": ("mlx_lm/llama/cost_positions", "A4.padded-to-the-longest"),
    "rows": ("mlx_lm/llama/cost_rows", "F11.step-done-again"),
    "gone": ("mlx_lm/llama/cost_rows", "B7.removed-row-decodes-on"),
    "first_token": ("mlx_lm/llama/cost_late", "A4.pieces-half-as-long"),
    "others_wait": ("mlx_lm/llama/cost_late", "B19.decode-waits-for-prefill"),
    "others_calls": ("mlx_lm/llama/cost_late", "B19.prefill-before-decode"),
    "host_reads": ("mlx_lm/llama/cost_reads", "C5.offsets-read-at-each-step"),
    "bytes_8": ("mlx_vlm/llama-wide/cost_quantized", "D5.groups-half-as-large"),
    "bytes_4": ("mlx_vlm/llama-wide/cost_quantized", "D5.groups-half-as-large"),
    "bytes_left": ("mlx_lm/llama/cost_rows", "A10.buffers-of-an-empty-batch"),
    "arrays": ("mlx_lm/llama/cost_lasting", "D5.outputs-of-all-steps-kept"),
    "graph": ("mlx_lm/llama/cost_lasting", "D5.chain-of-sums"),
    "prefix": ("mlx_lm/llama/cost_prefix", "F5.half-of-a-kept-prefix"),
}


@pytest.fixture(scope="module")
def registry():
    return build_registry()


@pytest.fixture(scope="module")
def session(registry):
    return Session(registry)


@pytest.fixture(scope="module")
def kept(session):
    """Of a case, what its contracts come to without a fault: played once for all its contracts."""
    return cache(lambda case: broken(session.run(case, only=short(case))))


# Where a scenario has schedules that take long, one that is enough.
ENOUGH = {"cost_lasting": ("lasting",), "cost_positions": ("twentieth",)}


def short(case):
    return ENOUGH.get(case.scenario, ())


def broken(result):
    return {cost.contract for s in result.schedules for cost in s.costs if not cost.kept}


def test_there_is_a_fault_for_every_contract():
    assert set(BROKEN_BY) == set(contracts().by_name)


@pytest.mark.parametrize("contract", BROKEN_BY)
def test_a_contract_is_broken_by_a_fault(registry, session, kept, contract):
    place, name = BROKEN_BY[contract]
    engine, family, scenario = place.split("/")
    case = CaseId(engine, family, scenario, "float32", 0)
    fault = registry.faults[f"{engine}/{name}"]
    assert contract not in kept(case)
    hits = Hits()
    wrong = session.run(case, around=lambda _: fault.inject(hits), only=short(case))
    assert hits.count
    assert contract in broken(wrong)
