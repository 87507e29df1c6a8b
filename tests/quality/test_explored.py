"""Exploring finds faults within a budget, and shrinks each to its known minimum.

By day the first few; the others are nightly, and take minutes.
"""

import dataclasses

import pytest
from mlx_lm.generate import BatchGenerator

from conformance.core.faults import Fault, Hits
from conformance.core.faults.patching import before
from conformance.core.verdict import CaseId
from conformance.power.faults import registry_with_faults
from conformance.run.session import Session
from conformance.scenarios.workloads import is_workload
from conformance.tools.explore.hunting import explore
from conformance.tools.explore.results import ExploreUnit, Maker

FAMILY = "llama"
# One takes a few; beside other tests on the same cores it may take longer than by itself.
SECONDS = 180

# Fault, examples within which it is found, and what it needs at least: requests, events (calls of
# insert and remove), why no fewer will do.
KNOWN = (
    ("B1.first-sampled-token-lost", 10, 1, 1, "each request loses its first token"),
    ("B6.mask-without-padding", 40, 2, 1, "padding takes a longer prompt beside"),
    ("B7.removed-row-decodes-on", 40, 1, 2, "a row and its removal"),
    ("B4.offset-of-row-0", 40, 2, 1, "rows of two lengths"),
    ("C1.padding-subtracted-twice", 40, 2, 1, "padding takes a longer prompt beside"),
    ("B14.padding-of-row-0", 40, 2, 1, "rows of two lengths"),
    ("D1.fill-of-the-wrong-sign", 40, 1, 1, "any prompt with a mask"),
    ("A9.filter-keeps-the-first-rows", 80, 2, 1, "a row that ends and one that stays"),
    ("A7.extend-drops-offsets", 80, 2, 1, "rows of two lengths that come together"),
    ("B18.joining-row-attends-its-padding", 300, 2, 1, "a prompt in two pieces beside another"),
    ("F13.token-counted-twice", 80, 1, 1, "a prompt in two pieces"),
    ("F13.token-left-out", 80, 1, 1, "a prompt in two pieces"),
    ("B2.logprobs-of-other-rows", 80, 2, 1, "a row that joins another"),
    ("F15.limit-of-another-row", 80, 2, 1, "a row that ends and one that stays"),
    ("F15.count-of-another-row", 200, 2, 1, "a row that joins another"),
    ("B10.prefill-not-removed", 80, 2, 2, "a prompt that is removed, and one beside it"),
    ("B10.neighbour-in-prefill-removed", 80, 2, 2, "a prompt that is removed, and one beside it"),
    ("B10.prompts-of-the-neighbours", 80, 2, 2, "a prompt that is removed, and one beside it"),
    ("F11.step-done-again", 80, 2, 2, "a removal while another row decodes"),
    ("B9.old-tokens-reused", 80, 2, 1, "a row that joins another"),
    ("F1.sampler-inherited", 400, 2, 1, "a row with a sampler and one without"),
    ("D8.history-of-another-row", 200, 2, 1, "a row with a penalty beside another"),
    ("F14.match-begins-anew-at-a-join", 500, 2, 2, "a stop sequence and a row that joins"),
    ("A9.extend-by-empty-unpadded", 400, 2, 2, "a row that comes when all others have ended"),
    ("D9.restored-row-counts-from-zero", 300, 2, 2, "a request and one that goes on from it"),
    ("F5.one-token-too-few", 300, 2, 2, "a request and one that goes on from it"),
    ("F4.entry-aliases-a-live-row", 300, 2, 2, "a request and one that goes on from it"),
    ("A9.cold-rows-unpadded", 400, 3, 2, "one to go on from, one that does, one beside it"),
    ("F3.keys-cut-off", 800, 2, 2, "a prompt that is kept, and one that begins as it does"),
    ("F5.cut-one-token-too-late", 800, 2, 2, "a prompt that is kept, and one that begins so"),
    ("F2.top-p-threshold-over-rows", 500, 2, 1, "two rows with one sampler"),
)
CHEAP = 3


@pytest.fixture(scope="module")
def registry():
    return registry_with_faults()


@pytest.fixture(scope="module")
def session(registry):
    return Session(registry)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(known, id=known[0], marks=[pytest.mark.nightly] * (number >= CHEAP))
        for number, known in enumerate(KNOWN)
    ],
)
def test_a_fault_is_found_and_shrunk_to_its_minimum(registry, session, known):
    name, budget, requests, events, _ = known
    unit = ExploreUnit("mlx_lm", FAMILY, "float32", 0, budget, fault=f"mlx_lm/{name}")
    found = explore(registry, unit, session=session)
    assert found.discoveries, f"not found in {found.examples} examples"
    (discovery,) = found.discoveries
    schedule = discovery.schedule
    assert discovery.reproduced
    assert len(schedule.requests) <= requests
    assert len(schedule.arrivals) + len(schedule.removals) <= events
    assert discovery.seconds <= SECONDS


def test_the_table_is_of_twenty_faults_that_there_are(registry):
    names = {name for name, *_ in KNOWN}
    assert len(names) == len(KNOWN) >= 20
    assert {f"mlx_lm/{name}" for name in names} <= set(registry.faults)


# Of the workloads with the default seed none prefills in pieces while so many rows decode.
_MANY = 7


def _piece_is_forgotten(hits):
    """A prompt is prefilled in pieces while many rows decode: its first token is another one."""

    def wrong(generator):
        if len(generator._generation_batch) >= _MANY:
            for pieces, done, _ in generator._currently_processing:
                if done and len(pieces) > 1:  # besides the last token
                    hits.hit()
                    pieces[0][0] += 1

    return before(BatchGenerator, "_next", wrong)


@pytest.fixture(scope="module")
def hidden(registry):
    """A registry with one more fault, which hides from the workloads."""
    fault = Fault("B0.forgotten", "lists", "test", "", "mlx_lm", (), (), _piece_is_forgotten)
    return dataclasses.replace(registry, faults={fault.key: fault}), fault


@pytest.mark.nightly
def test_a_drawn_workload_finds_what_those_of_the_ladder_miss(hidden):
    registry, fault = hidden
    unit = ExploreUnit("mlx_lm", FAMILY, "float32", 0, 600, fault=fault.key)
    (discovery,) = explore(registry, unit).discoveries
    assert discovery.maker is Maker.WORKLOADS
    assert len(discovery.schedule.requests) == _MANY + 1


@pytest.mark.nightly
def test_the_ladders_workloads_miss_it(hidden):
    registry, fault = hidden
    session, hits = Session(registry), Hits()
    for name in filter(is_workload, registry.scenarios):
        case = CaseId("mlx_lm", FAMILY, name, "float32", 0)
        right = session.run(case)
        wrong = session.run(case, around=lambda _: fault.inject(hits))
        assert wrong.verdict is right.verdict
    assert not hits.count
