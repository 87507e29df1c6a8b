"""A folder of vectors appears whole or not at all, and names what is not in it."""

from types import SimpleNamespace

import numpy as np
import pytest

from conformance.core.engine import Engine
from conformance.core.engine_options import Drafting, EngineOptions, KvQuant
from conformance.core.errors import GoldenError, Unsupported, VectorsError
from conformance.core.family import Facts, Family
from conformance.core.library import Coverage, Library
from conformance.core.numerics import Deviation, Envelope
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Media,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import Stream
from conformance.core.verdict import CaseId
from conformance.reference.noise import PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.oracle import OracleCheck
from conformance.scenarios import Scenario
from conformance.tools.vectors.exporting import Recorder, export, portable
from conformance.tools.vectors.reading import Vectors

ROWS = np.log(np.array([[0.5, 0.3, 0.2, 1e-9], [0.2, 0.5, 0.3, 1e-9]], np.float32))
NOISE = Envelope(np.full(2, 1e-5, np.float32), np.full(2, 1e-5, np.float32), 1e-6)
ORACLE = SimpleNamespace(
    solo=lambda request, options, schedule: Stream((0, 1), ROWS),
    check_stateless=lambda request, options: None,
    envelope=lambda request, options, schedule, runs: NOISE,
)


class Shelf(Library):
    name = "shelf"

    def coverage(self):
        return Coverage((), {})

    def versions(self):
        return {"shelf": "1.0"}

    def device(self):
        return "abacus"

    def write(self, family, folder, *, dtype, seed):
        (folder / "config.json").write_text(f"{family.name} {dtype} {seed}")
        if family.name == "half":
            raise Unsupported("no such layer")
        if family.name == "full":
            raise OSError(28, "No space left on device")

    def load(self, family, *, dtype, seed): ...
    def meter(self, model, *, evaluate=False): ...
    def single_stream(self, model, request, **options): ...
    def stateless(self, model, request, tokens): ...
    def teacher_forced(self, model, request, tokens, **options): ...
    def churn(self): ...


class Counter(Engine):
    name = "counter"
    library = "shelf"
    capabilities = frozenset()

    def __init__(self, model, options): ...
    def insert(self, submissions): ...
    def step(self): ...
    def remove(self, request_ids): ...
    def close(self): ...


def plain(name="s", **options):
    request = Request("a", (1, 2), 2)
    return Schedule(name, (Arrival((request,)),), options=EngineOptions(**options))


def crashing(brief):
    raise ValueError("no such media")


SCENARIOS = {
    "ragged": lambda brief: [plain(), plain("quantized", kv=KvQuant(8))],
    "quantized": lambda brief: [plain(kv=KvQuant(8))],
    "crashing": crashing,
    "repeat": lambda brief: [plain()],
}


class Session:
    registry = SimpleNamespace(
        engines={"counter": Counter},
        libraries={"shelf": Shelf()},
        scenarios={
            name: Scenario(
                name, 1, "an ingredient", frozenset(), make, oracle_only=name == "repeat"
            )
            for name, make in SCENARIOS.items()
        },
    )

    def subject(self, case):
        if case.family == "lost":
            raise Unsupported("no such model")
        family = Family(case.family, Facts(library="shelf"), {"vocab_size": 4})
        library = self.registry.libraries["shelf"]
        return SimpleNamespace(family=family, library=library, model=None, oracle=ORACLE)


def cases(*families, scenarios=SCENARIOS, dtype="float32"):
    return [CaseId("counter", f, s, dtype, 0) for f in families for s in scenarios]


def test_what_is_written_is_read_back(tmp_path):
    made = export(Session(), cases("one", dtype="bfloat16"), tmp_path / "v")
    found = Vectors(tmp_path / "v")
    assert found.manifest == made
    assert found.manifest.dtype == "bfloat16"
    exported = found.schedule("one", "ragged", "s")
    golden = found.golden("one")[exported.golden["a"]]
    assert golden.tokens == (0, 1)
    assert (tmp_path / "v/one/model/config.json").read_text() == "one bfloat16 0"
    assert list(tmp_path.iterdir()) == [tmp_path / "v"]


def test_what_is_left_out_is_named(tmp_path):
    said = []
    made = export(Session(), cases("one", "lost", "half"), tmp_path / "v", report=said.append)
    one = made.families["one"]
    assert one.scenarios == ("ragged",)
    assert {(left.scenario, left.schedule) for left in one.left_out} == {
        ("ragged", "quantized"),
        ("quantized", "s"),
        ("crashing", ""),
        ("repeat", ""),
    }
    assert any("ValueError: no such media" in left.reason for left in one.left_out)
    assert made.families_left_out == {"lost": "no such model", "half": "no such layer"}
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["manifest.json", "one"]
    assert said == [
        "one: 1 scenarios, 4 things left out",
        "lost: left out: no such model",
        "half: left out: no such layer",
    ]


def test_nothing_at_all(tmp_path):
    with pytest.raises(VectorsError, match="nothing can be exported: no such model"):
        export(Session(), cases("lost"), tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_portable(tmp_path):
    with pytest.raises(VectorsError, match="nothing can be exported: one: quantized caches"):
        export(Session(), cases("one", scenarios=["quantized"]), tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(VectorsError, match="exists already: name a new folder"):
        export(Session(), cases("one"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_full_disk_leaves_nothing(tmp_path):
    with pytest.raises(VectorsError, match=r"cannot write the vectors: .*No space left"):
        export(Session(), cases("one", "full"), tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_nothing(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(Session(), cases("one"), tmp_path / "v", report=interrupt)
    assert list(tmp_path.iterdir()) == []


# Goldens are recorded once for each distinct request, from a single stream that holds -------------


class Oracle:
    """Says tokens 4, 5, ... with noise of 1e-5; counts how often it is asked."""

    def __init__(self, *, spoil=None, agrees=True):
        self.asked = []
        self.runs = []
        self.spoil = spoil
        self.agrees = agrees

    def solo(self, request, options, schedule):
        self.asked.append(request.request_id)
        rows = np.full((request.max_tokens, 8), -3.0, np.float32)
        for step in range(request.max_tokens):
            rows[step, 4 + step] = -0.1
        if self.spoil is not None:
            rows[0] = self.spoil
        return Stream(tuple(4 + i for i in range(request.max_tokens)), rows)

    def check_stateless(self, request, options):
        noise = self.envelope(request, options, None, runs=PERTURBED_RUNS)
        bad = None if self.agrees else 0
        return OracleCheck(Deviation(np.zeros(1), np.zeros(1), 0, bad), noise)

    def envelope(self, request, options, schedule, *, runs):
        self.runs.append(runs)
        level = np.full(request.max_tokens + 4, 1e-5, np.float32)
        return Envelope(level, level, 1e-6)


def schedule(*requests, name="s", **options):
    return Schedule(name, (Arrival(requests),), options=EngineOptions(**options))


def request(name, length=3, **more):
    return Request(name, tuple(range(1, length + 1)), 2, **more)


def test_a_golden_holds_the_most_likely_tokens_best_first():
    recorder = Recorder(Oracle(), top=3)
    ids = recorder.record(schedule(request("a")), "ragged")
    assert ids == {"a": "ragged/s/a"}
    golden = recorder.recorded["ragged/s/a"]
    assert golden.request.request_id == "ragged/s/a"
    assert golden.tokens == (4, 5)
    assert golden.top[1] == ((5, -0.1), (0, -3.0), (1, -3.0))
    assert golden.margins == pytest.approx((2.9, 2.9))
    assert golden.noise == (1e-5, 1e-5)
    assert recorder.checked == 1


def test_the_noise_is_of_many_runs():
    oracle = Oracle()
    Recorder(oracle, top=3).record(schedule(request("a")), "ragged")
    assert oracle.runs[-1] == THOROUGH_RUNS


def test_equal_requests_share_a_golden():
    oracle = Oracle()
    recorder = Recorder(oracle, top=3)
    recorder.record(schedule(request("a"), request("b")), "ragged")
    ids = recorder.record(schedule(request("z"), name="t"), "wide")
    assert ids == {"z": "ragged/s/a"}
    assert oracle.asked == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        schedule(request("a"), prefill_step_size=1),
        schedule(request("a", length=4)),
        schedule(request("a", stop=((5,),))),
    ],
)
def test_other_requests_and_other_pieces_do_not(other):
    recorder = Recorder(Oracle(), top=3)
    recorder.record(schedule(request("a")), "ragged")
    assert recorder.record(other, "other") == {"a": "other/s/a"}
    assert len(recorder.recorded) == 2


def test_pieces_that_cut_nothing_are_none():
    recorder = Recorder(Oracle(), top=3)
    recorder.record(schedule(request("a")), "ragged")
    assert recorder.record(schedule(request("a"), prefill_step_size=2), "x") == {"a": "ragged/s/a"}


def test_what_goes_on_names_the_golden_that_it_goes_on_from():
    recorder = Recorder(Oracle(), top=3)
    more = request("b", continues=Continuation("a", 1))
    recorder.record(schedule(request("a"), more), "ragged")
    assert recorder.recorded["ragged/s/b"].request.continues == Continuation("ragged/s/a", 1)


@pytest.mark.parametrize("spoil", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_no_truth(spoil):
    recorder = Recorder(Oracle(spoil=spoil), top=3)
    with pytest.raises(GoldenError, match="ragged/s/a: the single stream's logprobs are not"):
        recorder.record(schedule(request("a")), "ragged")
    assert recorder.recorded == {}


def test_a_single_stream_that_disagrees_is_no_truth():
    recorder = Recorder(Oracle(agrees=False), top=3)
    with pytest.raises(GoldenError, match="disagrees with the pass without a cache"):
        recorder.record(schedule(request("a")), "ragged")


def test_a_schedule_that_fails_leaves_nothing_behind():
    oracle = Oracle()
    recorder = Recorder(oracle, top=3)
    bad = schedule(request("a"), request("b", length=4))
    oracle.check_stateless = lambda request, options: OracleCheck(
        Deviation(np.zeros(1), np.zeros(1), 0, 0 if request.request_id == "b" else None),
        oracle.envelope(request, options, None, runs=PERTURBED_RUNS),
    )
    with pytest.raises(GoldenError):
        recorder.record(bad, "ragged")
    ids = recorder.record(schedule(request("a")), "wide")
    assert ids["a"] in recorder.recorded


def test_masked_tokens_are_left_out():
    row = np.full(8, -np.inf, np.float32)
    row[[2, 3]] = -0.7
    recorder = Recorder(Oracle(spoil=row), top=4)
    recorder.record(schedule(request("a")), "ragged")
    assert [token for token, _ in recorder.recorded["ragged/s/a"].top[0]] == [2, 3]


# What is not every engine's own is left out, and named --------------------------------------------

SEEDED = Sampler("seeded", {"temperature": 0.8, "seed": 1})


def asking(name, **more):
    return Request(name, (1, 2), 3, **more)


def asked(*requests, **more):
    return Schedule("s", (Arrival(requests or (asking("a"),)),), **more)


@pytest.mark.parametrize(
    "schedule",
    [
        asked(),
        asked(options=EngineOptions(prefill_step_size=4)),
        asked(decode_on_other_thread=True),
        asked(asking("a", stop=((3,),))),
        asked(asking("a", sampler=Sampler("library", {"temp": 0.0}))),
        asked(asking("a", sampler=Sampler("library", {"temp": 0.7, "top_k": 1}))),
        asked(asking("a", processors=(Processor("library", {"logit_bias": {"1": 2.0}}),))),
    ],
)
def test_what_every_engine_can_do_is_kept_as_it_is(schedule):
    assert portable(schedule, "x") == (schedule, ())


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (asked(options=EngineOptions(kv=KvQuant(8))), "quantized"),
        (asked(options=EngineOptions(drafting=Drafting("d"))), "drafter"),
        (asked(options=EngineOptions(max_kv_size=8)), "max_kv_size"),
        (asked(probes=(Probe("p", Trigger()),)), "invalid calls"),
        (asked(weigh=Weigh.KEPT), "memory"),
        (asked(contracts=("positions",)), "costs"),
        (asked(asking("a", media=(Media("image", (2, 2)),)), asking("b")), "media"),
        (asked(asking("a", processors=(Processor("grammar"),)), asking("b")), "processor"),
        (asked(asking("a", processors=(Processor("library", {"new": 1}),))), "processor"),
    ],
)
def test_a_schedule_that_is_one_librarys_own(schedule, reason):
    rest, (left,) = portable(schedule, "x")
    assert rest is None
    assert (left.scenario, left.schedule, left.request) == ("x", "s", "")
    assert reason in left.reason


@pytest.mark.parametrize(
    "more",
    [
        {"sampler": SEEDED},
        {"sampler": Sampler("library", {"temp": 0.7, "top_p": 0.01})},
        {"sampler": Sampler("library", {"temp": 0.0, "xtc_probability": 1.0})},
    ],
)
def test_a_request_that_is_one_librarys_own_is_taken_out(more):
    schedule = asked(asking("a", **more), asking("b"))
    rest, (left,) = portable(schedule, "x")
    assert rest == asked(asking("b"))
    assert left.request == "a"
    assert portable(asked(asking("a", **more)), "x") == (None, (left,))


@pytest.mark.parametrize(
    "more",
    [
        {"arrivals": (Arrival((asking("c"),), Trigger("a", Stage.DECODE, 1)),)},
        {"arrivals": (Arrival((asking("c", continues=Continuation("a")),)),)},
        {"removals": (Removal(("a",), Trigger("b", Stage.DECODE, 1)),)},
    ],
)
def test_what_waits_for_one_taken_out_goes_with_it(more):
    first = Arrival((asking("a", sampler=SEEDED), asking("b")))
    arrivals = (first, *more.get("arrivals", ()))
    rest, left = portable(Schedule("s", arrivals, removals=more.get("removals", ())), "x")
    assert rest is None
    assert left[-1].reason == "others wait for a, left out"
