"""A folder of vectors appears whole or not at all, and names what is not in it."""

from types import SimpleNamespace

import numpy as np
import pytest

from conformance.core.engine import Engine
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported, VectorsError
from conformance.core.family import Facts, Family
from conformance.core.library import Coverage, Library
from conformance.core.numerics import Envelope
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.trace import Stream
from conformance.core.verdict import CaseId
from conformance.scenarios import Scenario
from conformance.tools.vectors.exporting import export
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
