"""Probes: what was raised is kept, and what changed is named."""

from functools import partial

import mlx.core as mx
import pytest

from conformance.core.engine_options import EngineOptions
from conformance.plugins.mlx_lm import compat, probes
from conformance.scenarios.request_options import _PROBE_GROUPS


@pytest.fixture
def generator(model):
    made = compat.make_generator(model, EngineOptions())
    made.insert([[1, 2, 3], [4, 5]], max_tokens=[9, 9])
    made.next()
    made.next()
    yield made
    made.close()


def planted(monkeypatch, call):
    monkeypatch.setattr(probes, "PROBES", {"planted": call})


def test_a_refusal_that_changes_nothing(generator, monkeypatch):
    def refuse(_):
        raise ValueError("the prompt is empty")

    planted(monkeypatch, refuse)
    found = probes.probe(generator, "planted")
    assert (found.kind, found.changed) == ("planted", ())
    assert found.error == "ValueError: the prompt is empty"


def test_an_accepted_call_and_what_it_changed(generator, monkeypatch):
    planted(monkeypatch, lambda g: g.insert([[7, 8]], max_tokens=[3]))
    found = probes.probe(generator, "planted")
    assert found.error is None
    assert [change.partition(":")[0] for change in found.changed] == ["uid counter", "queue"]


def test_a_refusal_after_half_of_the_work(generator, monkeypatch):
    def half(g):
        g._uid_count += 2
        raise KeyError("x")

    planted(monkeypatch, half)
    found = probes.probe(generator, "planted")
    assert found.error == "KeyError: 'x'"
    assert found.changed == ("uid counter: 2 became 4",)


def test_random_numbers_that_cannot_be_drawn_any_more_are_named_and_then_put_right(
    generator, monkeypatch
):
    @partial(mx.compile, inputs=mx.random.state)
    def refuse(_):
        raise ValueError("out of range")

    planted(monkeypatch, lambda _: refuse(mx.zeros(1)))
    found = probes.probe(generator, "planted")
    assert found.error == "ValueError: out of range"
    assert found.changed == ("random numbers: can be drawn became can be drawn no more",)
    assert mx.random.uniform().item() < 1


@pytest.mark.parametrize("kind", sorted(probes.PROBES))
def test_each_probe_ends_and_is_no_mistake_of_ours(generator, kind):
    """A wrong keyword of ours would be refused with a TypeError that names it."""
    found = probes.probe(generator, kind)
    assert found.kind == kind
    assert "unexpected keyword" not in (found.error or "")


def test_every_probe_belongs_to_a_group_that_a_scenario_makes():
    prefixes = tuple(prefix for group in _PROBE_GROUPS.values() for prefix in group)
    assert [kind for kind in probes.PROBES if not kind.startswith(prefixes)] == []
