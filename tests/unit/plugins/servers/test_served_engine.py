"""Each thing that a server can do wrong is found; a right server is exact in every scenario.

By day one wrong server in each scenario, and those of what goes over the wire.
"""

import re

import msgspec
import pytest
from miniatures import proxy, served
from miniatures.served import Served

from conformance.core import named_server
from conformance.core.errors import ModelError, NotOffered
from conformance.core.excused import excused, not_offered
from conformance.core.phases import Phases
from conformance.core.schedule import Client
from conformance.core.verdict import Verdict
from conformance.plugins.servers import served_engine
from conformance.plugins.servers.asking import Asking, Question, Resets, ServerFailedError
from conformance.plugins.servers.http import HttpEngine, HttpLibrary, served_family
from conformance.reference.subject import Subject
from conformance.report.message import worst_of
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import served_clients
from conformance.scenarios.served import SERVED_SCENARIOS

SCENARIOS = {scenario.name: scenario for scenario in SERVED_SCENARIOS}
PLAYED = [name for name, s in SCENARIOS.items() if s.needs <= HttpEngine.capabilities]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 3.0)
    monkeypatch.setenv("CONFORMANCE_SERVER", "")


def outcome(kind, name, *schedules, most=None, not_offered=()):
    """What comes of a scenario, or of some of its schedules, on a server of that kind."""
    with kind() as server:
        named_server.use(server.url, most=most, not_offered=not_offered)
        family = served_family()
        subject = Subject.load(HttpLibrary(), family, dtype="float32", seed=0, phases=Phases())
        scenario = SCENARIOS[name]
        made = scenario.make(brief_for(subject, HttpEngine, 0))
        kept = [s for s in made if not schedules or s.name in schedules]
        left_out = tuple(s.name for s in made if s not in kept)
        return judge_batched(subject, HttpEngine, scenario, kept, left_out=left_out)


@pytest.mark.parametrize("name", PLAYED)
def test_a_right_server_is_exact(name, monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    found = outcome(Served, name)
    assert found.verdict is Verdict.EXACT, found.findings


class OneModel(Served):
    models = ("small",)


class NoSchemas(Served):
    def bound(self, row):
        return False


class RefusesSchemas(Served):
    def check(self, body):
        return (400, "no schemas here") if "response_format" in body else super().check(body)


class RefusesOther(Served):
    def check(self, body):
        return (404, "not loaded") if body.get("model") == "other" else super().check(body)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (OneModel, "served_models", "names no model beside small"),
        (NoSchemas, "served_schemas", "response_format is ignored: '"),
        (RefusesSchemas, "served_schemas", "response_format is refused: HTTP 400"),
        (RefusesOther, "served_models", "another model is refused: HTTP 404"),
        (served.WithoutStop, "served_stops", "stop: HTTP 400: .*stop is not supported here"),
    ],
)
def test_what_a_server_does_not_offer_is_no_failure(kind, name, reason):
    found = outcome(kind, name)
    assert excused(found.verdict, found.findings)
    assert {one.verdict for one in found.schedules} == {Verdict.UNSUPPORTED}
    assert all(re.search(reason, why) for why in not_offered(found.findings).values())


@pytest.mark.parametrize(
    ("field", "name"), [("logprobs", "served_together"), ("response_format", "served_schemas")]
)
def test_a_server_that_fails_for_a_field_does_not_lack_it(field, name):
    class Fails(Served):
        def check(self, body):
            return (500, "IndexError") if field in body else super().check(body)

    with pytest.raises((ModelError, ServerFailedError), match="HTTP 500") as raised:
        outcome(Fails, name)
    assert not isinstance(raised.value, NotOffered)


def test_a_field_that_is_refused_once_alone_is_asked_for_again():
    class RefusesFirst(Served):
        models, cold = ("small",), True

        def check(self, body):
            if self.cold and "stop" in body:
                self.cold = False
                return 400, "stop: not ready"
            return super().check(body)

    assert outcome(RefusesFirst, "served_stops").verdict is Verdict.EXACT


CLIENTS = [client for client in Client if client is not Client.OPENAI]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_right_server_is_exact_with_each_client(client, monkeypatch):
    if not client.installed:
        pytest.skip(f"{client} is in the extra clients")
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    found = outcome(Served, "served_together", f"by_{client}")
    assert found.verdict is Verdict.EXACT, found.findings


def test_a_server_without_messages_offers_nothing_to_anthropic():
    pytest.importorskip("anthropic")
    found = outcome(served.WithoutMessages, "served_together", "by_anthropic")
    assert excused(found.verdict, found.findings)
    assert (
        "streams for the client anthropic: HTTP 404" in not_offered(found.findings)["by_anthropic"]
    )


@pytest.mark.parametrize("kind", [served.Small, served.SaysNoLogprobs])
def test_a_field_that_is_not_offered_leaves_the_rest_to_be_judged(kind):
    found = outcome(kind, "served_alone")
    verdicts = {schedule.name: schedule.verdict for schedule in found.schedules}
    assert verdicts == {"alone": Verdict.EXACT, "fields": Verdict.UNSUPPORTED}
    assert found.verdict is Verdict.EXACT, "judged by what is offered"


def test_logprobs_without_names_are_not_offered():
    found = outcome(served.NamesNothing, "served_alone")
    verdicts = {schedule.name: schedule.verdict for schedule in found.schedules}
    assert verdicts == {"alone": Verdict.EXACT, "fields": Verdict.UNSUPPORTED}
    assert found.verdict is Verdict.EXACT, "judged by what is offered"
    assert "have no `token`" in not_offered(found.findings)["fields"]


SMALL = (served.Small, served.EndsByItself, served.EndsSoon, served.SubWords, served.SubWordsAlone)
SMALL += (served.NamesAsVocabularies, served.NamesBytes, served.SaysItOddly)
SMALL += (served.NamesNothing, served.CountsNothing, served.SaysLittle)


# What takes seconds is asked of two of them by day.
LONG = {"served_together": (served.Small, served.SubWords)}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[pytest.mark.nightly] * (kind not in LONG.get(name, SMALL)))
        for kind in SMALL
        for name in ("served_together", "served_stops", "served_systems")
    ],
)
def test_a_small_right_server_is_exact(kind, name, monkeypatch):
    # On loaded cores a right one may be waited for, too.
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    found = outcome(kind, name)
    wrong = [finding for finding in found.findings if finding.verdict is not Verdict.UNSUPPORTED]
    assert not wrong
    # Some clients ask for usage in streams, which a small server may refuse.
    lacking = [one.name for one in found.schedules if one.verdict is Verdict.UNSUPPORTED]
    assert set(lacking) <= {"by_langchain_openai", "by_anthropic"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (served.CapsAnswers, "served_alone"),
        (served.CapsAnswers, "served_joins"),
        (served.ListsLikeliest, "served_alone"),
    ],
)
def test_a_lower_limit_and_fewer_of_the_likeliest_are_no_failure(kind, name, monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    found = outcome(kind, name)
    assert found.verdict is Verdict.EXACT, found.findings


def test_answers_that_end_early_are_no_failure():
    found = outcome(served.EndsSoon, "served_leaves")
    assert found.verdict is Verdict.EXACT, found.findings
    assert any("ends by itself after 5 tokens" in f.what for f in found.findings)


def test_a_server_with_few_slots_need_not_answer_more_at_once(monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    monkeypatch.setattr(served.Small, "slots", 3)
    found = outcome(served.Small, "served_together")
    assert found.verdict is Verdict.EXACT, found.findings
    (witness,) = found.witnesses  # one of three slots has the engine's own request, for a while
    # On loaded cores the end of one answer is read beside the begin of the next.
    few = re.match("the server answers at most [23] requests at once", witness.excused)
    assert few or witness.schedules


def test_a_server_that_answers_one_at_a_time_proves_nothing_until_its_user_says_so(monkeypatch):
    monkeypatch.setattr(HttpEngine, "patience", 60.0)
    found = outcome(served.OneAtATime, "served_together", "ragged")
    assert not found.verdict.good
    found = outcome(served.OneAtATime, "served_together", "ragged", not_offered=("late_join",))
    assert found.verdict is Verdict.EXACT, found.findings


# Where each is found, and as what.
FOUND = {
    served.CountsAnother: (
        ("served_together", "ragged"),
        "usage.prompt_tokens|usage.completion_tokens",
    ),
    served.LosesSpaces: (("served_together", "some_whole"), "the text of an answer"),
    served.DropsLogprobs: (("served_together", "ragged"), "tokens with logprobs"),
    served.WrongPiece: (("served_together", "ragged"), "word|output token"),
    served.WrongPieceWithLogprobs: (("served_together", "ragged"), "word 6 is 'x'"),
    served.LosesPiece: (("served_together", "ragged"), "the text of an answer"),
    served.PieceOfAnother: (("served_together", "ragged"), "word 1 is"),
    served.LogprobsOfAnother: (("served_together", "ragged"), "logprob"),
    served.LikeliestOfAnother: (("served_together", "ragged"), "among the likeliest, 'zz'"),
    served.ShiftsLogprobs: (("served_alone", "alone"), "of another text than it has"),
    served.NamesNothingBeside: (("served_together", "ragged"), "word 2 is"),
    served.LosesLastText: (("served_alone", "alone"), "of another text than it has"),
    served.LosesFirstText: (("served_alone", "alone"), "lacks that of its first token, ' w'"),
    served.ShiftsLikeliest: (("served_together", "ragged"), "are 0.45 nats below those alone"),
    served.SaysStopAtLimit: (("served_alone", "alone"), "and the finish_reason 'stop', as each of"),
    served.ReasonOfAnother: (("served_stops",), "is right, and its finish_reason 'length'"),
    served.EndsEarlyAtLimit: (("served_alone",), "3 of 24 tokens"),
    served.DropsLastToken: (("served_together", "ragged"), "the text of a stream|logprobs|number"),
    served.TextOfAnother: (("served_together", "ragged"), "word 3 is"),
    served.RepeatsPiece: (("served_together", "ragged"), "word 3 is"),
    served.NoticesNobodyLeft: (("served_leaves", "last_slot"), "for a client that had left"),
    served.KeepsSlot: (("served_leaves", "last_slot"), "nothing came for 3 s for next"),
    served.CountsOneTooMany: (("served_alone",), "usage.completion_tokens"),
    served.TotalIsWrong: (("served_alone",), "usage.total_tokens"),
    served.CountsNoStreams: (("served_alone",), "usage"),
    served.LoopEndsAtError: (
        ("served_malformed", "numbers"),
        "nothing came for 3 s for r11, r5: no reason in its log; its port answers",
    ),
    served.StarvesWhoJoins: (("served_joins",), "that a joining request waited for"),
    served.SkipsAtJoin: (("served_joins",), "output token|alone it is"),
    served.LosesWhoWaits: (("served_flood",), "nothing came for"),
    served.WholeIsShorter: (("served_together", "ragged"), "word 23 is"),
    served.EndsWithoutReason: (("served_alone",), "finish"),
    served.UnknownReason: (("served_alone",), "finish"),
    served.ChangesId: (("served_alone",), "ids of one answer"),
    served.IgnoresStop: (("served_stops",), "after the end of the single stream"),
    served.TakesAnything: (("served_malformed", "numbers"), "was accepted"),
    served.FailsForClients: (("served_malformed", "messages"), "HTTP 500"),
    served.RefusesWithoutReason: (("served_malformed", "messages"), "HTTP 204"),
    served.SaysNan: (("served_alone",), "NaN"),
    served.Garbles: (("served_alone",), "not an answer of the API"),
    served.CutsStreams: (("served_together", "ragged"), "finish"),
    served.SaysHtml: (("served_alone",), "the answer to a right request"),
    served.ConstrainsOthers: (("served_schemas", "in_one_batch"), "word 0 is|word 1 is"),
    served.KeepsConstraint: (("served_schemas", "in_turn"), "word 0 is"),
    served.LosesConstraint: (("served_schemas", "in_one_batch"), "word 0 is"),
    served.KeepsModel: (("served_models",), "other tokens of the other model"),
    served.LoadsNothing: (("served_models", "while_one_answers"), "word 0 is"),
    served.KeepsSystem: (("served_systems",), "answers that differ"),
    served.KeepsMemory: (("served_flood",), "memory that the server kept"),
    served.SaysInFlight: (("served_alone",), "requests in flight"),
    served.CutsCharacters: (("served_together", "ragged"), "the text of an answer"),
    served.SaysTurnEnded: (("served_together", "by_anthropic"), "finish"),
    served.SendsMore: (("served_together", "by_raw"), "longer than its Content-Length"),
    served.SaysNoDone: (("served_together", "by_raw"), "it has no [DONE]"),
    served.LosesSlots: (("served_flood",), "half of the slots at work again"),
}
SLOTS = {served.NoticesNobodyLeft: 2, served.KeepsSlot: 2, served.LosesWhoWaits: 1}


def test_each_wrong_server_is_tried():
    assert list(FOUND) == served.WRONG


# It takes three seconds each to see that an answer does not come.
LONG = {served.NoticesNobodyLeft, served.LosesWhoWaits, served.LosesSlots, served.StarvesWhoJoins}
LONG |= {served.EndsWithoutReason, served.SaysInFlight}
BY_DAY = {*{where: kind for kind, (where, _) in FOUND.items() if kind not in LONG}.values()}
BY_DAY |= {kind for kind in FOUND if issubclass(kind, served.SubWords)}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, id=k.__name__, marks=[pytest.mark.nightly] * (k not in BY_DAY))
        for k in served.WRONG
    ],
)
def test_a_wrong_server_is_found(kind, monkeypatch):
    if kind is served.SaysTurnEnded:
        pytest.importorskip("anthropic")
    if kind in SLOTS:
        monkeypatch.setattr(kind, "slots", SLOTS[kind])
    if kind in {served.NoticesNobodyLeft, served.StarvesWhoJoins}:
        monkeypatch.setattr(HttpEngine, "patience", 30.0)
    if kind is served.KeepsMemory:  # as much of a tenth of the requests
        monkeypatch.setattr(served_clients, "FLOOD", served_clients.FLOOD // 10)
        monkeypatch.setattr(served_engine, "_MANY", served_engine._MANY // 10)
        monkeypatch.setattr(HttpEngine, "memory", lambda _: 2**28 + 10 * kind.kept)
    (name, *schedules), what = FOUND[kind]
    found = outcome(kind, name, *schedules)
    assert not found.verdict.good
    lead = worst_of(found.findings)
    assert any(part in lead.what for part in what.split("|")), [f.what for f in found.findings]


TOGETHER = next(s for s in SERVED_SCENARIOS if s.name == "served_together")
WAY = "its way here failed, not its decoding"


def outcome_between(between):
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
    found, spoiled = outcome_between(between)
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
    found, spoiled = outcome_between(between)
    assert spoiled
    assert found.verdict is Verdict.PROTOCOL, found.findings
    texts = [f.what for f in found.findings]
    assert any(said in text for text in texts), texts
    assert any(WAY in text for text in texts), texts
    assert not any("output token" in text for text in texts), texts


def test_a_connection_that_is_reset_once_is_made_again_and_more_are_found():
    found, spoiled = outcome_between(proxy.Resets)
    assert (found.verdict, spoiled) == (Verdict.EXACT, 1), found.findings
    found, _ = outcome_between(proxy.ResetsThree)
    assert any("ReadError" in finding.what for finding in found.findings), found.findings


def test_resets_are_counted_over_the_whole_run():
    with Served() as server, proxy.ResetsThree(server.url) as way:
        resets = Resets(2)
        asking = Asking(way.url, resets=resets)
        way.open = 1
        body = {"model": "small", "max_tokens": 1, "input": [{"role": "user", "content": "a"}]}
        came = asking.ask(Question("a", body), 5.0)
        asking.close()
    assert "ReadError" in came.error


def test_a_way_that_passes_nothing_on_is_a_hang_of_an_open_port():
    found, _ = outcome_between(proxy.Stops)
    texts = [f.what for f in found.findings]
    assert found.verdict is Verdict.HANG, found.findings
    assert any("nothing came for 3 s" in t and "its port answers" in t for t in texts), texts
