"""What spoils an answer on its way is not taken for the server's decoding."""

import msgspec
import pytest
from miniatures import proxy
from miniatures.served import Served

from conformance.core import named_server
from conformance.core.phases import Phases
from conformance.core.verdict import Verdict
from conformance.plugins.servers.http import HttpEngine, HttpLibrary, served_family
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.served import SERVED_SCENARIOS

TOGETHER = next(s for s in SERVED_SCENARIOS if s.name == "served_together")
WAY = "its way here failed, not its decoding"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 3.0)
    for name in ("CONFORMANCE_URL", "CONFORMANCE_SERVED_MODEL", "CONFORMANCE_REQUESTS"):
        monkeypatch.setenv(name, "")


def outcome(between):
    """What comes of requests of several lengths with that between client and server."""
    with Served() as server, between(server.url) as way:
        named_server.use(way.url)
        family = served_family()
        subject = Subject.load(HttpLibrary(), family, dtype="float32", seed=0, phases=Phases())
        kept = [s for s in TOGETHER.make(brief_for(subject, HttpEngine, 0)) if s.name == "ragged"]
        kept = [replaced(schedule) for schedule in kept]
        left_out = ("equal_length", "identical", "some_whole")
        found = judge_batched(subject, HttpEngine, TOGETHER, kept, left_out=left_out)
        return found, way.spoiled


def replaced(schedule):
    """The schedule without the engine's own request, which would be spoiled first."""
    options = msgspec.structs.replace(schedule.options, busy=False)
    return msgspec.structs.replace(schedule, options=options)


@pytest.mark.parametrize("between", [proxy.Proxy, proxy.Delays])
def test_what_comes_late_is_right(between):
    found, spoiled = outcome(between)
    assert found.verdict is Verdict.EXACT, found.findings
    assert not spoiled


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (proxy.Cuts, "the stream broke off"),
        (proxy.CutsAtOnce, "RemoteProtocolError"),
        (proxy.Garbles, "not an answer of the API"),
        (proxy.GarblesStatus, "RemoteProtocolError"),
        (proxy.SaysHtml, "content type text/html in place of text/event-stream"),
    ],
)
def test_a_spoiled_answer_is_asked_for_again(between, said):
    found, spoiled = outcome(between)
    assert spoiled
    assert found.verdict is Verdict.PROTOCOL, found.findings
    texts = [f.what for f in found.findings]
    assert any(said in text for text in texts), texts
    assert any(WAY in text for text in texts), texts
    assert not any("output token" in text for text in texts), texts


def test_a_way_that_passes_nothing_on_is_a_hang_of_an_open_port():
    found, _ = outcome(proxy.Stops)
    texts = [f.what for f in found.findings]
    assert found.verdict is Verdict.HANG, found.findings
    assert any("nothing came for 3 s" in t and "its port answers" in t for t in texts), texts
