"""The smallest schedule that shows a known defect, and only it."""

import msgspec
import pytest
from miniatures.right import ContinuousBatching
from miniatures.sessions import entry_of_wrong, padding_is_masked, toy_family, toy_session
from miniatures.wrong import AttendsToPadding, LosesFirstToken

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.entries import Refusal
from conformance.core.faults.patching import replace
from conformance.core.mends import mend
from conformance.core.verdict import CaseId, Verdict
from conformance.run.judging.judge import worst
from conformance.run.mending import Mending
from conformance.scenarios import LADDER
from conformance.scenarios.served import SERVED_SCENARIOS
from conformance.scenarios.smaller_schedules import size
from conformance.tools.releases.locking import Missing, Place, obstacle, places_of, searched


def entry(name="padding-attended", **changes):
    verdicts = dict.fromkeys(("staggered", "ragged"), Verdict.DIVERGED)
    return entry_of_wrong(name, **{"verdicts": verdicts, **changes})


class LosesBoth(LosesFirstToken, AttendsToPadding):
    """Loses first tokens, and attends to padding."""


@mend("first-token-lost")
def first_tokens_are_kept(hits):
    """All tokens are answered."""
    hits.hit()
    return replace(LosesFirstToken, "emit", ContinuousBatching.emit)


@mend("padding-attended")
def nothing_is_repaired(hits):
    """Looks at other code."""
    return replace(LosesFirstToken, "emit", ContinuousBatching.emit)


def search(*entries, engine=AttendsToPadding, mends=(padding_is_masked,), seconds=20.0):
    session = toy_session({"wrong": engine}, mends=mends)
    mending = Mending(session)
    (place,) = places_of(session.registry, Expectations(entries), entries[:1])
    return searched(session, mending, place, entries[1:], seconds=seconds), mending


def test_the_schedule_that_is_stored_fails_as_the_entry_says_and_is_right_mended():
    found, mending = search(entry())
    line = found.line
    assert found.why is None
    assert (line.entry, line.verdict) == ("padding-attended", Verdict.DIVERGED)
    assert line.case == "wrong/calm/staggered/float32/0", "the cheapest of all that its cases name"
    assert not line.unfinished
    assert not line.beside
    assert size(line.schedule)[:2] == (2, 1), "one row has no padding, and one arrival suffices"
    case = CaseId.parse(line.case)
    assert worst(mending.small(case, line.schedule)) is Verdict.DIVERGED
    assert worst(mending.small(case, line.schedule, [padding_is_masked])).good
    assert mending.verdict_of(line, {line.entry: entry()}) is line.verdict


def test_what_reads_stray_memory_still_shows_with_any_verdict_of_its_entry():
    found, mending = search(entry())
    line = msgspec.structs.replace(found.line, verdict=Verdict.NAN)
    stray = (Verdict.DIVERGED, Verdict.NAN, Verdict.UNSTABLE)
    unstable = entry(verdicts=dict.fromkeys(("staggered", "ragged"), stray))
    assert mending.verdict_of(line, {line.entry: unstable}) is Verdict.NAN
    fixed = entry(verdicts=dict.fromkeys(("staggered", "ragged"), stray[:2]))
    assert mending.verdict_of(line, {line.entry: fixed}) is Verdict.DIVERGED


def test_a_search_without_time_stores_what_it_began_with():
    found, _ = search(entry(), seconds=0.0)
    assert found.line is None
    assert found.why is Missing.RIGHT


def test_a_defect_beside_it_is_mended_in_both_runs():
    """Where two show in every schedule, the milder one is seen behind the other."""
    mends = [padding_is_masked, first_tokens_are_kept]
    worse = {"staggered": Verdict.PROTOCOL}
    behind, other = entry(verdicts=worse), entry("first-token-lost", verdicts=worse)
    found, mending = search(behind, other, engine=LosesBoth, mends=mends)
    assert found.line.verdict is Verdict.DIVERGED
    assert found.line.beside == ("first-token-lost",)
    known = {"padding-attended": behind, "first-token-lost": other}
    assert mending.verdict_of(found.line, known) is found.line.verdict
    case = CaseId.parse(found.line.case)
    assert not worst(mending.small(case, found.line.schedule, [padding_is_masked])).good


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({}, {"engine": ContinuousBatching}, Missing.RIGHT),
        ({}, {"mends": [nothing_is_repaired]}, Missing.OTHER),
        ({}, {"mends": []}, Missing.NO_MEND),
        ({"verdicts": {"ragged": Verdict.CRASH}}, {}, Missing.RIGHT),
        ({"schedules": {"ragged": ("no",), "staggered": ("no",)}}, {}, Missing.RIGHT),
        ({"verdicts": {}}, {}, Missing.BESIDE),
        ({"ends_process": True}, {}, Missing.ENDS),
        ({"device": "gpu (NVIDIA"}, {}, Missing.DEVICE),
        ({"families": ("other",)}, {}, Missing.NO_CASE),
    ],
)
def test_an_entry_without_a_schedule_has_a_reason(changes, options, why):
    found, _ = search(entry(**changes), seconds=6.0, **options)
    assert found.line is None
    assert found.why is why


def test_a_schedule_that_fails_mended_too_shows_something_else():
    line = search(entry())[0].line
    session = toy_session({"wrong": AttendsToPadding}, mends=[nothing_is_repaired])
    assert Mending(session).verdict_of(line, {line.entry: entry()}) is Verdict.VACUOUS
    right = toy_session({"wrong": ContinuousBatching}, mends=[padding_is_masked])
    assert Mending(right).verdict_of(line, {line.entry: entry()}) is Verdict.EXACT


def test_the_families_that_stand_for_others_come_first():
    families = [
        toy_family("refused", quick=True),
        toy_family("quick", quick=True),
        toy_family("also_quick", quick=True),
        toy_family("slow"),
    ]
    session = toy_session({"wrong": AttendsToPadding}, families=families)
    refusal = Refusal(
        id="no",
        engines=("*",),
        families=("refused",),
        dtypes=("*",),
        text="no",
        why="no",
        package="",
    )
    known = Expectations((), (refusal,))
    wide = entry(families=("*",))
    narrow = entry("narrow", families=("slow",))

    def names(entries, families=()):
        found = places_of(session.registry, known, entries, families)
        return [(place.entry.id, place.family) for place in found]

    own = "padding-attended"
    assert names([narrow, wide]) == [
        (own, "quick"),
        ("narrow", "slow"),
        (own, "also_quick"),
        (own, "refused"),
    ]
    assert names([narrow, wide], ["s*"]) == [("narrow", "slow"), (own, "slow")]


def test_a_server_is_not_searched():
    session = toy_session({"wrong": ContinuousBatching}, scenarios=(*LADDER, *SERVED_SCENARIOS))
    place = Place(entry(verdicts={"served_together": Verdict.DIVERGED}), "", ())
    assert obstacle(session.registry, Mending(session), place) is Missing.SERVED
