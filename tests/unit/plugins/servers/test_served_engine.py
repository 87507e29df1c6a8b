"""Each thing that a server can do wrong is found; a right server is exact in every scenario."""

import pytest
from miniatures import served
from miniatures.served import Served

from conformance.core import named_server
from conformance.core.phases import Phases
from conformance.core.verdict import Verdict
from conformance.plugins.servers.http import HttpEngine, HttpLibrary, conformance_families
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.served import SERVED_SCENARIOS

SCENARIOS = {scenario.name: scenario for scenario in SERVED_SCENARIOS}
PLAYED = [name for name, s in SCENARIOS.items() if s.needs <= HttpEngine.capabilities]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 3.0)
    for name in ("CONFORMANCE_URL", "CONFORMANCE_SERVED_MODEL", "CONFORMANCE_REQUESTS"):
        monkeypatch.setenv(name, "")


def outcome(kind, name, *schedules, most=None):
    """What comes of a scenario, or of some of its schedules, on a server of that kind."""
    with kind() as server:
        named_server.use(server.url, most=most)
        (family,) = conformance_families()
        subject = Subject.load(HttpLibrary(), family, dtype="float32", seed=0, phases=Phases())
        scenario = SCENARIOS[name]
        made = scenario.make(brief_for(subject, HttpEngine, 0))
        kept = [s for s in made if not schedules or s.name in schedules]
        left_out = tuple(s.name for s in made if s not in kept)
        return judge_batched(subject, HttpEngine, scenario, kept, left_out=left_out)


@pytest.mark.parametrize("name", PLAYED)
def test_a_right_server_is_exact(name):
    found = outcome(Served, name)
    assert found.verdict is Verdict.EXACT, found.findings


# Where each is found, and as what.
FOUND = {
    served.DropsLastToken: (("served_together", "ragged"), "the text of a stream|logprobs|number"),
    served.TextOfAnother: (("served_together", "ragged"), "output token"),
    served.RepeatsPiece: (("served_together", "ragged"), "output token|number of tokens"),
    served.NoticesNobodyLeft: (("served_leaves", "only_slot"), "for a client that had left"),
    served.KeepsSlot: (("served_leaves", "only_slot"), "an answer to each request"),
    served.CountsOneTooMany: (("served_alone",), "usage.completion_tokens"),
    served.TotalIsWrong: (("served_alone",), "usage.total_tokens"),
    served.CountsNothing: (("served_alone",), "usage"),
    served.LoopEndsAtError: (("served_malformed", "numbers"), "an answer to each request"),
    served.StarvesWhoJoins: (("served_joins",), "that a joining request waited for"),
    served.SkipsAtJoin: (("served_joins",), "output token"),
    served.LosesWhoWaits: (("served_flood",), "an answer to each"),
    served.WholeIsShorter: (("served_together", "ragged"), "the text of a stream"),
    served.EndsWithoutReason: (("served_alone",), "finish"),
    served.UnknownReason: (("served_alone",), "finish"),
    served.ChangesId: (("served_alone",), "ids of one answer"),
    served.IgnoresStop: (("served_stops",), "finish reason"),
    served.TakesAnything: (("served_malformed", "numbers"), "was accepted"),
    served.FailsForClients: (("served_malformed", "messages"), "HTTP 500"),
    served.RefusesWithoutReason: (("served_malformed", "messages"), "HTTP 204"),
    served.SaysNan: (("served_alone",), "NaN"),
    served.Garbles: (("served_alone",), "not an answer of the API"),
    served.CutsStreams: (("served_together", "ragged"), "finish"),
    served.SaysHtml: (("served_alone",), "the answer to a right request"),
}
SLOTS = {served.NoticesNobodyLeft, served.KeepsSlot, served.LosesWhoWaits}


def test_each_wrong_server_is_tried():
    assert list(FOUND) == served.WRONG


@pytest.mark.parametrize("kind", served.WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_server_is_found(kind, monkeypatch):
    if kind in SLOTS:
        monkeypatch.setattr(kind, "slots", 1)
        monkeypatch.setattr(kind, "tick", 0.004)  # what nobody waits for must take a while
    if kind is served.StarvesWhoJoins:
        monkeypatch.setattr(kind, "tick", 0.004)
    if kind in {served.NoticesNobodyLeft, served.StarvesWhoJoins}:
        monkeypatch.setattr(HttpEngine, "patience", 30.0)
    (name, *schedules), what = FOUND[kind]
    found = outcome(kind, name, *schedules)
    assert not found.verdict.good
    texts = [f.what for f in found.findings]
    assert any(part in text for text in texts for part in what.split("|")), texts
