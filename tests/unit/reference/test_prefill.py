"""The three ways of prefill: what each calls, and that a row gives what its single stream gives."""

import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Stage
from conformance.core.trace import FinishReason
from conformance.reference.engine import Makers
from conformance.reference.prefill import Mixed, Padded, Solo

PROMPTS = {"a": (3, 1, 4, 1, 5, 9, 2, 6, 5), "b": (2, 7), "c": (1,), "d": (8, 2, 8, 1, 8, 2)}
STEPS = {"a": 4, "b": 6, "c": 5, "d": 3}
LATE = {"e": (4, 6, 6, 9, 2), "f": (1, 2, 3)}


class Plain:
    makers = Makers(lambda sampler: None, lambda processors: [])


ENGINES = [type(base.__name__, (Plain, base), {}) for base in (Solo, Padded, Mixed)]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def engine_class(request):
    return request.param


def submit(engine, prompts, steps=3):
    counts = steps if isinstance(steps, dict) else dict.fromkeys(prompts, steps)
    engine.insert([Submission(Request(n, p, counts[n])) for n, p in prompts.items()])


def run(engine, streams=None, *, steps=99):
    """Step until no request is live; tokens and logprobs of each request."""
    streams = {} if streams is None else streams
    for _ in range(steps):
        if not engine.stages():
            break
        for event in engine.step().events:
            streams.setdefault(event.request_id, []).append(event)
    return streams


def check(model, solo, streams, prompts, steps=3):
    counts = steps if isinstance(steps, dict) else dict.fromkeys(prompts, steps)
    for name, prompt in prompts.items():
        tokens, logprobs = solo(model, prompt, counts[name])
        assert [event.token for event in streams[name]] == tokens
        got = np.stack([event.logprobs for event in streams[name]])
        assert np.abs(got - logprobs).max() < 1e-4
        assert [event.finish_reason for event in streams[name]] == [
            *[None] * (counts[name] - 1),
            FinishReason.LENGTH,
        ]


@pytest.mark.parametrize("piece", [2, 3, 2048])
def test_rows_of_all_lengths_late_ones_too_are_what_they_are_in_single_streams(
    model, solo, engine_class, piece
):
    engine = engine_class(model, EngineOptions(prefill_step_size=piece, completion_batch_size=4))
    submit(engine, PROMPTS, STEPS)
    streams = run(engine, steps=4)
    submit(engine, LATE)
    run(engine, streams)
    check(model, solo, streams, PROMPTS, STEPS)
    check(model, solo, streams, LATE)
    assert engine.cache_bytes() == 0


def test_removed_rows_give_no_output_and_change_nothing(model, solo, engine_class):
    options = EngineOptions(prefill_step_size=2, prefill_batch_size=2, completion_batch_size=3)
    engine = engine_class(model, options)
    submit(engine, PROMPTS, STEPS)
    streams = run(engine, steps=2)
    removed_from = engine.stages()
    assert removed_from["a"] is Stage.PREFILL
    assert removed_from["d"] is Stage.QUEUED
    engine.remove(["a", "d"])
    said = len(streams.get("a", ())), len(streams.get("d", ()))
    run(engine, streams)
    assert (len(streams.get("a", ())), len(streams.get("d", ()))) == said
    check(model, solo, streams, {name: PROMPTS[name] for name in "bc"}, STEPS)
    submit(engine, LATE)
    check(model, solo, run(engine), LATE)


def test_a_request_goes_on_from_a_live_and_from_a_finished_row(model, solo, engine_class):
    for steps in (4, 99):
        engine = engine_class(model, EngineOptions(prefill_step_size=4))
        submit(engine, {"a": PROMPTS["a"]}, 5)
        streams = run(engine, steps=steps)
        caches, tokens = engine.extract("a")
        assert tokens == [*PROMPTS["a"], *(event.token for event in streams["a"])]
        again = Request("again", (6, 2, 7), 4)
        engine.insert([Submission(again, prefix=(caches, tokens))])
        run(engine, streams)
        whole = (*tokens, *again.prompt)
        check(model, solo, {"again": streams["again"]}, {"again": whole}, 4)
        check(model, solo, streams, {"a": PROMPTS["a"]}, 5)


@pytest.mark.parametrize(
    ("engine", "calls"),
    [
        (ENGINES[0], [(1, 8), (1, 1), (1, 5), (1, 1), (4, 1)]),
        (ENGINES[1], [(3, 8), (1, 1), (4, 1)]),
        (ENGINES[2], [(4, 8), (4, 1), (4, 1)]),
    ],
    ids=["alone", "padded", "mixed"],
)
def test_which_calls_bring_prompts_in(tiny, engine, calls):
    model = tiny("keys")
    engine = engine(model, EngineOptions())
    submit(engine, PROMPTS)
    for _ in range(3):
        engine.step()
    assert model.calls == calls


def test_tokens_are_forced(model, solo, engine_class):
    engine = engine_class(model, EngineOptions(prefill_step_size=3))
    forced = (5, 5, 1, 7)
    engine.insert([Submission(Request("r", PROMPTS["a"], 4), forced=forced)])
    events = run(engine)["r"]
    assert tuple(event.token for event in events) == forced
    _, want = solo(model, (*PROMPTS["a"], *forced[:3]), 1)
    assert np.abs(events[3].logprobs - want[0]).max() < 1e-4


def test_a_row_that_keeps_its_neighbours_caches_is_reported(tiny, solo, monkeypatch):
    """What these tests look at does change when rows share a cache."""
    model = tiny("state")
    shared = ArraysCache(1)
    monkeypatch.setattr(model, "make_cache", lambda: [shared])
    engine = ENGINES[1](model, EngineOptions())
    submit(engine, {name: PROMPTS[name] for name in "ad"})
    streams = run(engine)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check(model, solo, streams, {name: PROMPTS[name] for name in "ad"})
