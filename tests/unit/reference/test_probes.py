"""Each invalid call is refused and leaves no mark, and a mark would be seen."""

import pytest

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request
from conformance.reference import probes
from conformance.reference.engine import Makers
from conformance.reference.prefill import Padded
from conformance.reference.probes import check_known, check_options, check_requests


class Engine(Padded):
    makers = Makers(lambda sampler: None, lambda processors: [])


@pytest.fixture
def engine(tiny):
    engine = Engine(tiny("keys"), EngineOptions(completion_batch_size=1))
    engine.insert([Submission(Request(name, (1, 2, 3), 4)) for name in "ab"])
    engine.step()
    return engine


@pytest.mark.parametrize("kind", probes.PROBES)
def test_each_invalid_call_is_refused_and_changes_nothing(engine, kind):
    result = engine.probe(kind)
    assert result.error.startswith("ValueError: ")
    assert result.changed == ()


def test_a_call_that_is_taken_and_what_it_changes_is_reported(engine, monkeypatch):
    monkeypatch.setattr("conformance.reference.probes.check_requests", lambda *args: None)
    result = engine.probe("zero_max_tokens")
    assert result.error is None
    assert [change.partition(":")[0] for change in result.changed] == ["queue"]


def test_the_engine_lists_its_probes(engine):
    assert engine.probes() == tuple(probes.PROBES)
    assert {kind.split("_")[0] for kind in probes.PROBES} >= {"mismatched", "unknown", "zero"}


GOOD = Request("good", (1, 2, 3), 4)


@pytest.mark.parametrize(
    "name", ["prefill_step_size", "prefill_batch_size", "completion_batch_size", "max_kv_size"]
)
def test_sizes_must_allow_some_work(name):
    check_options(EngineOptions(**{name: 1}))
    with pytest.raises(ValueError, match=name):
        check_options(EngineOptions(**{name: 0}))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("r", (), 4), "prompt is empty"),
        (Request("r", (1,), 0), "max_tokens is 0"),
        (Request("r", (1, 2), 4, segments=(1,)), "differ in length"),
        (Request("r", (1, 2), 4, segments=(2, 0)), "a segment is empty"),
        (Request("good", (1,), 4), "id is in use"),
        (Request("old", (1,), 4), "id is in use"),
    ],
)
def test_requests_that_could_not_be_played_are_refused(request_, words):
    check_requests([GOOD], {"old"})
    with pytest.raises(ValueError, match=words):
        check_requests([GOOD, request_], {"old"})


def test_only_live_requests_can_be_removed():
    check_known(["a"], {"a", "b"})
    with pytest.raises(ValueError, match="'c'"):
        check_known(["a", "c"], {"a", "b"})
