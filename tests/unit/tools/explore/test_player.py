"""A schedule is played once, free, where it is right; what accuses nobody is no finding."""

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.scenarios.build import produced, text_request, together
from conformance.tools.explore.player import Clock
from conformance.tools.explore.results import Signature


def joining(player):
    """Another prompt comes while one decodes."""
    one, other = (
        text_request(player.brief, "a", 5, max_tokens=5),
        text_request(player.brief, "b", 3),
    )
    return Schedule("joining", (together(one), together(other, when=produced("a", 1))))


def test_what_is_right_takes_one_run(player):
    right = player()
    before = len(right.subject.meter)
    right.subject.oracle.solo(
        text_request(right.brief, "a", 5, max_tokens=5), EngineOptions(), None
    )
    right.subject.oracle.solo(text_request(right.brief, "b", 3), EngineOptions(), None)
    right.subject.oracle.dtypes(text_request(right.brief, "b", 3), EngineOptions())
    alone = len(right.subject.meter) - before
    assert right.findings(joining(right)) == ()
    calls = [call for call in right.subject.meter[before + alone :] if call.batch]
    assert len(calls) < 12
    assert right.played_before(joining(right))


def test_what_is_wrong_is_found_and_kept(player):
    wrong = player("JoinsOneOff")
    found = wrong.findings(joining(wrong))
    assert {finding.verdict for finding in found} <= {Verdict.DRIFT, Verdict.DIVERGED}
    assert found
    assert wrong.findings(joining(wrong)) is found
    assert wrong.shows(joining(wrong), Signature("numbers")) in found
    assert wrong.shows(joining(wrong), Signature("leak")) is None


def test_a_fault_is_in_the_engine_and_not_in_the_oracle(player):
    faulty = player(fault="right/B1.lost")
    assert faulty.findings(joining(faulty))
    assert player().findings(joining(faulty)) == ()


def test_what_is_wrong_without_the_fault_is_not_the_faults(player):
    faulty = player("JoinsOneOff", fault="right/B1.lost")
    assert faulty.findings(joining(faulty)) == ()


def test_a_crash_detects_a_fault_only_if_it_is_one(player):
    crash = Finding(Verdict.CRASH, "failure", "raised")
    assert player().accuses(crash)
    assert not player(fault="right/B1.lost").accuses(crash)


def test_a_request_that_fails_alone_is_a_crash(player):
    right = player()
    right.subject.library.single_stream = None  # this instance's alone
    try:
        (found,) = right.findings(Schedule("alone", (together(Request("a", (30, 30, 29), 2)),)))
    finally:
        del right.subject.library.single_stream
    assert found.verdict is Verdict.CRASH


@pytest.mark.parametrize("ticks", [1, 5])
def test_a_clock_stands_still_while_it_is_stopped(ticks):
    clock = Clock()
    clock.start()
    for _ in range(ticks):
        clock.tick()
    clock.stop()
    wall = clock.wall
    assert sum(clock.rates) == ticks
    assert clock.wall == wall
    clock.start()
    assert clock.wall >= wall
