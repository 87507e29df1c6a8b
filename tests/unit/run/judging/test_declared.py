"""An engine that declares how it reuses prefixes must keep to it."""

import pytest
from miniatures.caching import KeepsPrefixes
from miniatures.library import subject
from miniatures.sessions import toy_session
from miniatures.slots import (
    CountsFromFour,
    FixedSlots,
    KeepsSlotsCache,
    MovesRows,
    NamesNoSlots,
    NoSlots,
    SharesSlots,
)

from conformance.core.prefix_reuse import PrefixReuse
from conformance.core.verdict import CaseId, Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.batch import SLOT_REUSE
from conformance.scenarios.prefix_caching import PREFIX_CACHING


@pytest.fixture(scope="module")
def toy():
    return subject()


def findings(toy, rules):
    """Those about an engine that keeps blocks of four tokens at once, whatever it declares."""

    class Declares(KeepsPrefixes):
        prefix_reuse = rules

    made = PREFIX_CACHING.make(brief_for(toy, Declares, 0))
    return judge_batched(toy, Declares, PREFIX_CACHING, made).findings


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        (PrefixReuse(smallest=20), "reused 16 tokens of the prompt, fewer than the smallest"),
        (PrefixReuse(block_size=16), "reused 20 tokens of the prompt, no whole blocks of 16"),
        (PrefixReuse(on_completion=True), "of which requests that had ended hold 0"),
    ],
)
def test_a_declaration_that_is_not_kept_breaks_the_protocol(toy, rules, what):
    found = [f for f in findings(toy, rules) if f.check == "protocol"]
    assert {finding.verdict for finding in found} == {Verdict.PROTOCOL}
    assert any(what in finding.what for finding in found)
    assert all(f"PrefixReuse({rules})" in finding.expected for finding in found)


def test_a_declaration_that_is_kept_is_fine(toy):
    assert findings(toy, PrefixReuse(smallest=4, block_size=2)) == ()


# Engines with a fixed number of slots -------------------------------------------------------------


def of_slots(engine, scenario=SLOT_REUSE):
    session = toy_session({"slots": engine})
    return session.run(CaseId("slots", "calm", scenario.name, "float32", 0))


@pytest.mark.parametrize(
    ("engine", "what"),
    [
        (MovesRows, "r1 was in slot 1 and is in slot 0"),
        (SharesSlots, "r0 and r1 are in slot 0"),
        (CountsFromFour, "r0 is in slot 4, of 4"),
        (NamesNoSlots, "`rows()` never says which of the 4 slots a request is in"),
    ],
)
def test_a_request_that_does_not_keep_a_slot_breaks_the_protocol(engine, what):
    found = of_slots(engine)
    assert found.verdict is Verdict.PROTOCOL
    assert what in {finding.what for finding in found.evidence}


def test_a_right_engine_with_slots_is_right_and_a_wrong_one_is_not():
    assert of_slots(FixedSlots).verdict is Verdict.EXACT
    assert of_slots(KeepsSlotsCache).verdict is Verdict.DIVERGED
    assert of_slots(NoSlots).verdict is Verdict.CRASH


@pytest.mark.parametrize(
    "scenario", ["early_finish", "cancelled", "wide", "traffic", "traffic_quantized"]
)
def test_no_more_rows_are_wanted_than_there_are_slots(scenario):
    session = toy_session({"slots": FixedSlots})
    found = session.run(CaseId("slots", "calm", scenario, "float32", 0))
    assert found.verdict.good, found.evidence
    assert "the engine declares 4 slots" in {witness.excused for witness in found.witnesses}


def test_what_waits_for_a_slot_continues_from_what_was_there_when_it_arrived():
    """Nothing of the toy engine is kept between requests: the workload is vacuous in that alone."""
    session = toy_session({"slots": FixedSlots})
    found = session.run(CaseId("slots", "calm", "traffic_kept", "float32", 0))
    assert all(schedule.verdict.good for schedule in found.schedules)


def test_of_an_engine_with_one_slot_nothing_is_excused():
    one = type("One", (FixedSlots,), {"slots": 1, "width": 1})
    assert toy_session({"slots": one}).run(
        CaseId("slots", "calm", "ragged", "float32", 0)
    ).verdict in (Verdict.VACUOUS, Verdict.UNSUPPORTED)
