"""A cache from a file must give what the one in memory gives, in a single stream, too."""

import pytest
from miniatures.library import ToyLibrary, subject
from miniatures.right import ContinuousBatching

from conformance.core.schedule import Arrival, Continuation, Request, Schedule, Stage, Trigger
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.judging.loaded_streams import loaded
from conformance.run.judging.playing import play_schedule
from conformance.scenarios import LADDER
from conformance.scenarios.build import text_request


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


class RefusesBatches(ContinuousBatching):
    """It takes no request at all."""

    def insert(self, requests, *more):
        raise ValueError("batches are not supported")


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


def test_nothing_is_said_where_the_engine_refuses():
    assert findings(LosesAToken(), engine=RefusesBatches) == []


def test_what_the_file_loses_is_found():
    (finding,) = findings(LosesAToken())
    assert (finding.verdict, finding.request_id) == (Verdict.ORACLE, "more")
    assert "nats off" in finding.got


def test_a_single_stream_that_fails_is_found():
    (finding,) = findings(CannotLoad())
    assert finding.verdict is Verdict.ORACLE
    assert finding.got == "AttributeError: no attribute 'left_padding'"


def test_a_case_is_judged_by_it_too():
    toy = subject(LosesAToken())
    scenario = next(scenario for scenario in LADDER if scenario.name == "prompt_cache")
    found = judge_batched(toy, ContinuousBatching, scenario, [saved_schedule(toy)])
    assert [s.verdict for s in found.schedules] == [Verdict.ORACLE]
