"""Each contract of what work costs is broken by a fault in a library, and kept without it."""

from functools import cache

import pytest
from shared_oracles import shared_store

from conformance.core.contracts import contracts
from conformance.core.faults import Hits
from conformance.core.verdict import CaseId, Verdict
from conformance.plugins.servers.planting import InServer
from conformance.power.faults import registry_with_faults
from conformance.run.session import Session

BROKEN_BY = {
    "positions": ("mlx_lm/llama/cost_positions", "A4.padded-to-the-longest"),
    "rows": ("mlx_lm/llama/cost_rows", "F11.step-done-again"),
    "gone": ("mlx_lm/llama/cost_rows", "B7.removed-row-decodes-on"),
    "first_token": ("mlx_lm/llama/cost_late", "A4.pieces-half-as-long"),
    "others_wait": ("mlx_lm/llama/cost_late", "B19.decode-waits-for-prefill"),
    "others_calls": ("mlx_lm/llama/cost_late", "B19.prefill-before-decode"),
    "left": ("mlx_lm_server/llama/cost_served", "S13.disconnect-not-noticed"),
    "at_rest": ("mlx_vlm_server/llama/cost_served", "S28.caches-of-ended-rows-kept"),
    "host_reads": ("mlx_lm/llama/cost_reads", "C5.offsets-read-at-each-step"),
    "bytes_8": ("mlx_vlm/llama-wide/cost_quantized", "D5.groups-half-as-large"),
    "bytes_4": ("mlx_vlm/llama-wide/cost_quantized", "D5.groups-half-as-large"),
    "bytes_left": ("mlx_lm/llama/cost_rows", "A10.buffers-of-an-empty-batch"),
    "arrays": ("mlx_lm/llama/cost_lasting", "D5.outputs-of-all-steps-kept"),
    "graph": ("mlx_lm/llama/cost_lasting", "D5.chain-of-sums"),
    "prefix": ("mlx_lm/llama/cost_prefix", "F5.half-of-a-kept-prefix"),
}

# Of servers: the schedule, and the fault of the server or of its library that is put in there.
SERVED_BROKEN_BY = {
    ("mlx_lm_server", "positions"): ("twentieth", "mlx_lm/A4.padded-to-the-longest"),
    ("mlx_lm_server", "rows"): ("end", "mlx_lm_server/S27.prompt-computed-twice"),
    ("mlx_lm_server", "left"): ("left", "mlx_lm_server/S13.disconnect-not-noticed"),
    ("mlx_lm_server", "first_token"): ("late", "mlx_lm/A4.pieces-half-as-long"),
    ("mlx_lm_server", "others_wait"): ("late", "mlx_lm/B19.decode-waits-for-prefill"),
    ("mlx_lm_server", "others_calls"): ("late", "mlx_lm/B19.prefill-before-decode"),
    ("mlx_vlm_server", "at_rest"): ("end", "mlx_vlm_server/S28.caches-of-ended-rows-kept"),
    ("mlx_vlm_server", "left"): ("left", "mlx_vlm_server/S13.disconnect-not-noticed"),
}


@pytest.fixture(scope="module")
def registry():
    return registry_with_faults()


@pytest.fixture(scope="module")
def session(registry):
    return Session(registry, store=shared_store())


@pytest.fixture(scope="module")
def kept(session):
    """Of a case, what its contracts come to without a fault: played once for all its contracts."""
    return cache(lambda case, only: broken(session.run(case, only=only)))


# Where the scenario has schedules that take long, one that is enough.
ENOUGH = {
    "arrays": ("lasting",),
    "graph": ("lasting",),
    "positions": ("twentieth",),
    "left": ("left",),
    "at_rest": ("end",),
}


def broken(result):
    return {cost.contract for s in result.schedules for cost in s.costs if not cost.kept}


def test_there_is_a_fault_for_every_contract():
    assert set(BROKEN_BY) == set(contracts())


# These need a real server; by day tests/unit/checks/test_contract_counts.py plants such counts.
OF_SERVERS = {"left", "at_rest"}


@pytest.mark.parametrize(
    "contract",
    [pytest.param(c, marks=[pytest.mark.nightly] * (c in OF_SERVERS)) for c in BROKEN_BY],
)
def test_a_contract_is_broken_by_a_fault(registry, session, kept, contract):
    place, name = BROKEN_BY[contract]
    engine, family, scenario = place.split("/")
    case = CaseId(engine, family, scenario, "float32", 0)
    fault = registry.faults[f"{engine}/{name}"]
    only = ENOUGH.get(contract, ())
    assert contract not in kept(case, only)
    hits = Hits()
    wrong = session.run(case, around=lambda _: fault.inject(hits), only=only)
    assert hits.count
    assert contract in broken(wrong)
    assert not wrong.verdict.good
    assert any(f.verdict is Verdict.COST and f"`{contract}`" in f.cause for f in wrong.evidence)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("engine", "contract"),
    SERVED_BROKEN_BY,
)
def test_a_contract_of_a_server_is_broken_by_a_fault(registry, session, engine, contract):
    schedule, key = SERVED_BROKEN_BY[engine, contract]
    case = CaseId(engine, "llama", "cost_served", "float32", 0)
    inject = registry.faults[key].inject
    put_in = inject if isinstance(inject, InServer) else InServer(inject)
    right = session.run(case, only=(schedule,))
    assert contract in {cost.contract for s in right.schedules for cost in s.costs}
    assert contract not in broken(right)
    hits = Hits()
    wrong = session.run(case, around=lambda _: put_in(hits), only=(schedule,))
    assert hits.count
    assert contract in broken(wrong)
