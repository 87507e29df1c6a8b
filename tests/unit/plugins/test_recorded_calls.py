"""What the adapters say is accepted and passed, by the installed libraries."""

import ast
import inspect
import sys

import pytest

import conformance.plugins.servers.mlx_lm_server as lm_server
import conformance.plugins.servers.mlx_vlm_server as vlm_server
from conformance.core.accepted_fields import COMMAND_LINE
from conformance.core.engine_options import EngineOptions
from conformance.core.family import load_family
from conformance.core.origin import Origin
from conformance.core.schedule import Arrival, Asked, Continuation, Request, Schedule
from conformance.core.token_choice import Sampler
from conformance.plugins.mlx_lm.batch_generate import BatchGenerator, MlxLmBatchGenerate
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_lm.plugin import FAMILIES
from conformance.plugins.servers.mlx_lm_server import MlxLmServer
from conformance.plugins.servers.mlx_vlm_server import MlxVlmServer
from conformance.run.field_coverage import known_fields, new_fields
from conformance.scenarios.marker_styles import STYLES

FAMILY = load_family(FAMILIES / "llama.json")


@pytest.fixture(scope="module")
def model():
    return MlxLm().load(FAMILY, dtype="float32", seed=0)


def request(name, **more):
    return Request(name, (1, 2, 3), 2, **more)


def values(found, name):
    return [p.value for p in found if p.name == name]


@pytest.mark.parametrize("engine", [MlxLmEngine, MlxLmBatchGenerate, MlxLmServer, MlxVlmServer])
def test_all_that_the_installed_release_accepts_is_known(engine):
    if engine is MlxVlmServer:
        pytest.importorskip("mlx_vlm.server")
    assert engine.accepted()
    assert new_fields([engine], known_fields()) == ()


def test_a_new_parameter_is_named(monkeypatch):
    right = BatchGenerator.insert

    def insert(self, prompts, novel=None, **more):
        return right(self, prompts, **more)

    monkeypatch.setattr(BatchGenerator, "insert", insert)
    insert.__qualname__ = right.__qualname__
    (sentence,) = new_fields([MlxLmEngine], known_fields())
    assert "novel (BatchGenerator.insert)" in sentence


@pytest.mark.parametrize(
    ("engine", "module", "line", "place"),
    [
        (MlxLmServer, lm_server, "self.body.get('novel')", "request"),
        (MlxLmServer, lm_server, "parser.add_argument('--novel')", COMMAND_LINE),
        (MlxVlmServer, vlm_server, "parser.add_argument('--novel')", COMMAND_LINE),
    ],
)
def test_a_new_field_or_option_is_named(monkeypatch, engine, module, line, place):
    right = module.source_tree

    def planted(name):
        tree = right(name)
        tree.body += ast.parse(line).body
        return tree

    monkeypatch.setattr(module, "source_tree", planted)
    (sentence,) = new_fields([engine], known_fields())
    assert f"novel ({place})" in sentence


def test_a_new_field_of_a_request_model_is_named(monkeypatch):
    schemas = pytest.importorskip("mlx_vlm.server.schemas")
    fields = {**schemas.ChatRequest.model_fields, "novel": None}
    planted = type("ChatRequest", (), {"model_fields": fields})
    for module in [m for n, m in sys.modules.items() if n.startswith("mlx_vlm.server")]:
        if "ChatRequest" in vars(module):
            monkeypatch.setattr(module, "ChatRequest", planted)
    (sentence,) = new_fields([MlxVlmServer], known_fields())
    assert "novel (ChatRequest)" in sentence


def test_what_is_inserted_is_recorded_and_nothing_is_decoded(model):
    rows = (request("a"), request("b", sampler=Sampler("rank", {"rank": 1})))
    more = request("c", continues=Continuation("a"))
    schedule = Schedule(
        "s", (Arrival(rows), Arrival((more,))), options=EngineOptions(max_kv_size=8)
    )
    before = inspect.getattr_static(BatchGenerator, "insert")
    found = MlxLmEngine.passed(model, schedule)
    assert inspect.getattr_static(BatchGenerator, "insert") is before
    assert values(found, "max_kv_size") == ["8"]
    none, sampler, of_more = values(found, "samplers")
    assert none == of_more == "None"
    assert "rank" in sampler
    assert values(found, "caches") == ["None", "'an extracted cache'"]
    assert [p.arrival for p in found if p.name == "samplers"] == [0, 0, 1]


def test_what_the_function_gets_is_recorded(model):
    schedule = Schedule("s", (Arrival((request("a"), request("b"))),))
    found = MlxLmBatchGenerate.passed(model, schedule)
    assert values(found, "prompts") == ["[[1, 2, 3], [1, 2, 3]]"]
    assert values(found, "return_logprobs") == ["True"]
    assert values(found, "logits_processors") == ["left out"]


def test_what_a_server_would_be_asked_is_recorded():
    asked = (Asked(fields={"top_k": 3}), Asked(chat=False), Asked(other=1), Asked(adapter=2))
    rows = tuple(request(name, asked=own) for name, own in zip("abcd", asked, strict=True))
    options = EngineOptions(completion_batch_size=3)
    schedule = Schedule("s", (Arrival(rows),), options=options)
    origin = Origin(None, FAMILY, "float32", 0, lambda folder: None)
    found = MlxLmServer.passed(origin, schedule)
    left_out = "left out"
    assert values(found, "top_k") == ["3", left_out, left_out, left_out]
    assert values(found, "prompt") == [left_out, "'t1 t2 t3'", left_out, left_out]
    assert values(found, "model") == ["'FOLDER'", "'FOLDER'", "'FOLDER/other1'", "'FOLDER'"]
    assert values(found, "adapters")[3] == "'FOLDER/adapter2'"
    assert values(found, "--decode-concurrency") == ["'3'"]
    assert values(found, "--draft-model") == [left_out]


def test_nothing_is_read_of_a_folder_that_only_a_started_server_writes():
    schedule = Schedule(
        "s", (Arrival((request("a"),)),), options=EngineOptions(markers=next(iter(STYLES)))
    )
    origin = Origin(None, FAMILY, "float32", 0, lambda folder: None)
    (name,) = values(MlxLmServer.passed(origin, schedule), "model")
    assert name.startswith("'FOLDER/of_")
