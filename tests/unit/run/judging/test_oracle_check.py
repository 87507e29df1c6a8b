"""The oracle against itself: what it must find in libraries that are wrong without any batch."""

import pytest
from miniatures.library import (
    ForgetfulLibrary,
    PieceworkLibrary,
    RestlessLibrary,
    ShakyLibrary,
    ToyLibrary,
    subject,
)
from miniatures.right import ContinuousBatching

from conformance.core.schedule import Arrival, Continuation, Request, Schedule, Stage, Trigger
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for
from conformance.run.judging.oracle_check import judge_oracle
from conformance.run.judging.oracle_deviation import loaded
from conformance.run.judging.playing import play_schedule
from conformance.scenarios.build import text_request
from conformance.scenarios.solo import RECHUNKED, REPEAT


def judge(library, scenario):
    toy = subject(library)
    return judge_oracle(toy, scenario.make(brief_for(toy, ContinuousBatching, 0)))


@pytest.mark.parametrize(
    ("library", "scenario", "verdict", "checks"),
    [
        (ToyLibrary, REPEAT, Verdict.EXACT, set()),
        (ToyLibrary, RECHUNKED, Verdict.EXACT, set()),
        (ShakyLibrary, REPEAT, Verdict.EXACT, set()),
        (ShakyLibrary, RECHUNKED, Verdict.EXACT, set()),
        (RestlessLibrary, REPEAT, Verdict.ORACLE, {"repeat", "stateless"}),
        (PieceworkLibrary, REPEAT, Verdict.EXACT, set()),
        (PieceworkLibrary, RECHUNKED, Verdict.ORACLE, {"rechunked", "stateless"}),
        (ForgetfulLibrary, REPEAT, Verdict.ORACLE, {"stateless"}),
    ],
)
def test_verdict(library, scenario, verdict, checks):
    outcome = judge(library(), scenario)
    assert outcome.verdict is verdict
    assert {finding.check for finding in outcome.findings} == checks


def test_a_stream_that_is_other_the_second_time_is_unstable():
    outcome = judge(RestlessLibrary(), REPEAT)
    found = [f for f in outcome.findings if f.check == "repeat"]
    assert {f.verdict for f in found} == {Verdict.UNSTABLE}
    assert {f.request_id for f in found} == {"r5", "r11", "r23", "image"}
    assert all(f.difference > f.noise for f in found)


def test_what_the_single_stream_gets_wrong_is_drawn_without_a_run():
    outcome = judge(RestlessLibrary(), REPEAT)
    picture = outcome.picture
    worst = next(f for f in outcome.findings if f.verdict is outcome.verdict)
    assert (picture.schedule, picture.steps, picture.lanes) == (worst.schedule, 0, ())
    compared = picture.compared
    assert (compared.request_id, compared.bad) == (worst.request_id, worst.step)
    assert compared.difference[worst.step] == pytest.approx(worst.difference, rel=1e-2)
    assert len(compared.margin) == len(compared.noise) == len(compared.difference)
    assert judge(ToyLibrary(), REPEAT).picture is None


def test_memory_is_dirtied_before_the_stream_is_made_again():
    library = ToyLibrary()
    judge(library, REPEAT)
    assert library.churns == 4


class LateLibrary(PieceworkLibrary):
    """Pieces show only from the third token on."""

    def logits(self, model, fed, options, *, alone):
        late = len(fed) >= alone + 2
        return super().logits(model, fed, options, alone=alone if late else 0)


def test_the_first_bad_step_is_reported():
    found = judge(LateLibrary(), RECHUNKED).findings
    assert {f.step for f in found} == {2}
    assert all(f.difference > f.noise for f in found)


# A cache from a file must give what the one in memory gives, in a single stream, too --------------


class Saves(ToyLibrary):
    """What it loads is what was saved."""

    def reloaded(self, cache):
        return cache


class LosesAToken(ToyLibrary):
    """What it loads lacks the last token."""

    def reloaded(self, cache):
        return cache[:-1]


class CannotLoad(ToyLibrary):
    """The file cannot be read."""

    def reloaded(self, cache):
        raise AttributeError("no attribute 'left_padding'")


def saved_schedule(toy, *, saved=True):
    first = text_request(brief_for(toy, ContinuousBatching, 0), "a", 5)
    more = Request("more", (9, 8), 2, continues=Continuation("a", saved=saved))
    arrivals = (Arrival((first,)), Arrival((more,), Trigger("a", Stage.FINISHED)))
    return Schedule("saved", arrivals)


def findings(library, *, saved=True, engine=ContinuousBatching):
    toy = subject(library)
    return list(loaded(toy, play_schedule(toy, engine, saved_schedule(toy, saved=saved))))


@pytest.mark.parametrize(
    ("library", "saved"), [(Saves(), True), (ToyLibrary(), True), (LosesAToken(), False)]
)
def test_nothing_is_said_of_what_is_right_or_not_saved(library, saved):
    assert findings(library, saved=saved) == []


def test_what_the_file_loses_is_found():
    (finding,) = findings(LosesAToken())
    assert (finding.verdict, finding.request_id) == (Verdict.ORACLE, "more")
    assert "nats off" in finding.got


def test_a_single_stream_that_fails_is_found():
    (finding,) = findings(CannotLoad())
    assert finding.verdict is Verdict.ORACLE
    assert finding.got == "AttributeError: no attribute 'left_padding'"
