"""Each invalid call is refused and leaves no mark, and a mark would be seen."""

import pytest

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request
from conformance.reference import probes
from conformance.reference.engine import Makers
from conformance.reference.prefill import Padded


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
    monkeypatch.setattr("conformance.reference.invalid_calls.check_requests", lambda *args: None)
    result = engine.probe("zero_max_tokens")
    assert result.error is None
    assert [change.partition(":")[0] for change in result.changed] == ["queue"]


def test_the_engine_lists_its_probes(engine):
    assert engine.probes() == tuple(probes.PROBES)
    assert {kind.split("_")[0] for kind in probes.PROBES} >= {"mismatched", "unknown", "zero"}
