"""Cases one after another: what is shared, what a failure becomes, what a result holds."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from miniatures.library import ToyLibrary
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_family, toy_session
from miniatures.wrong import WRONG

from conformance.core.errors import ModelError, Unsupported
from conformance.core.verdict import CaseId, Verdict, decode, encode
from conformance.reference.oracle import MIN_STEPS
from conformance.report.history import wrong_requests
from conformance.run import session as module
from conformance.run.judging import summing
from conformance.run.session import Session, ThreadLeaks, finding_of

LACK = "libGL.so.1: cannot open shared object file: No such file or directory"


class Broken(ToyLibrary):
    """Cannot load some families; counts how often it loads."""

    def __init__(self):
        super().__init__()
        self.loads = []

    def load(self, family, *, dtype, seed):
        self.loads.append((family.name, dtype, seed))
        if family.name == "beyond":
            raise Unsupported("model type beyond is not supported")
        if family.name == "torn":
            raise ModelError("weights are missing")
        if family.name == "lacking":
            raise ModelError("it cannot be loaded") from ImportError(LACK)
        return super().load(family, dtype=dtype, seed=seed)

    def single_stream(self, model, request, **options):
        if options["options"].max_kv_size:
            raise IndexError("list index out of range")
        return super().single_stream(model, request, **options)


@pytest.fixture
def session():
    engines = {"right": ContinuousBatching} | {engine.__name__: engine for engine in WRONG}
    names = ("calm", "beyond", "torn", "lacking", "one", "two", "three")
    return toy_session(engines, library=Broken(), families=[toy_family(name) for name in names])


def run(session, scenario="ragged", *, family="calm", engine="right", seed=0):
    return session.run(CaseId(engine, family, scenario, "float32", seed))


def loads(session):
    return session.registry.libraries["toy"].loads


def test_a_right_engines_result(session):
    result = run(session)
    assert result.case == "right/calm/ragged/float32/0"
    assert (result.engine, result.family, result.scenario) == ("right", "calm", "ragged")
    assert (result.verdict, result.expected, result.evidence) == (Verdict.EXACT, True, ())
    assert (result.max_abs_diff, result.ratio, result.first_bad_step) == (0.0, 0.0, None)
    assert result.noise > 0
    assert [s.name for s in result.schedules] == ["ragged", "one_beside_medium", "long"]
    assert (result.versions, result.device) == ({"toy": "1"}, "abacus")
    assert 0 <= result.forward_seconds <= result.seconds
    assert decode(encode(result)) == result


def test_a_scenario_without_an_engine_is_judged_by_the_oracle(session):
    assert run(session, "repeat").verdict is Verdict.EXACT
    assert [s.name for s in run(session, "rechunked").schedules] == ["rechunked"]


def test_only_rungs_have_longer_single_streams_than_they_need(session):
    """A workload's rows are in no other scenario."""
    streams = session.registry.libraries["toy"].streams
    for scenario in ("ragged", "traffic", "ragged"):
        session._subjects.clear()
        streams.clear()
        run(session, scenario)
        # Two steps show the dtypes of caches.
        short = {steps for _, steps in streams if steps < MIN_STEPS} - {2}
        assert (1 in short) is bool(short) is (scenario == "traffic")


def test_only_the_last_models_are_kept(session):
    for family in ("calm", "one", "two", "calm", "three", "three", "calm"):
        run(session, "batch_of_one", family=family)
    assert [name for name, _, _ in loads(session)] == ["calm", "one", "two", "three", "calm"]


@pytest.mark.parametrize("evaluate", [True, False])
def test_calls_are_evaluated_inside_only_if_asked(session, monkeypatch, evaluate):
    calls = []
    monkeypatch.setattr(
        Broken, "meter", lambda self, model, *, evaluate: calls.append(evaluate) or model.calls
    )
    run(Session(session.registry, evaluate=True) if evaluate else Session(session.registry))
    assert calls == [evaluate]


@pytest.mark.parametrize(
    ("family", "verdict", "message"),
    [
        ("beyond", Verdict.UNSUPPORTED, "Unsupported: model type beyond is not supported"),
        ("torn", Verdict.CRASH, "ModelError: weights are missing"),
        ("lacking", Verdict.CRASH, f"ImportError: {LACK}"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_a_verdict_and_is_tried_once(
    session, family, verdict, message
):
    for scenario in ("ragged", "wide"):
        result = run(session, scenario, family=family)
        assert result.verdict is verdict
        assert result.evidence[0].got == message
        assert not result.expected
        assert result.max_abs_diff is None
    assert len(loads(session)) == 1


def test_a_schedule_names_all_its_wrong_requests_however_many_findings_are_kept(
    session, monkeypatch
):
    whole = run(session, engine="AttendsToPadding")
    monkeypatch.setattr(summing, "MOST_FINDINGS", 1)
    cut = run(session, engine="AttendsToPadding")
    assert len(cut.evidence) == 1
    named = {schedule.name: schedule.wrong for schedule in cut.schedules}
    assert named == {
        schedule.name: tuple(
            wrong_requests(
                schedule.verdict, [f for f in whole.evidence if f.schedule == schedule.name]
            )
        )
        for schedule in whole.schedules
    }
    assert sum(map(len, named.values())) > 1


# Threads that a case leaks, and those that are no leak --------------------------------------------


@pytest.fixture
def begin(monkeypatch):
    """Begin a thread that runs until the test is over."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)
    over = threading.Event()

    def call(daemon=False):
        thread = threading.Thread(target=over.wait, name="forgotten", daemon=daemon)
        thread.start()
        return thread

    yield call
    over.set()


def test_a_leaked_thread_is_reported_with_its_place(begin):
    before = begin()
    leaks = ThreadLeaks()
    thread = begin()
    assert leaks.find() == (thread,), "not the one that was there before"
    finding = finding_of(leaks.find())
    assert (finding.verdict, finding.check) == (Verdict.LEAK, "threads")
    assert finding.got.startswith("forgotten in ")
    assert "threading.py:" in finding.got
    assert before.is_alive()


def test_a_thread_may_take_a_moment_to_end(monkeypatch):
    monkeypatch.setattr(module, "GRACE_SECONDS", 5.0)
    leaks = ThreadLeaks()
    threading.Thread(target=time.sleep, args=[0.1]).start()
    assert leaks.find() == ()


def test_daemons_and_pools_are_no_leak(begin):
    leaks = ThreadLeaks()
    begin(daemon=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert leaks.find() == ()
