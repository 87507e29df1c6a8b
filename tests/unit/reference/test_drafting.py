"""Drafts change how many tokens come out of a pass, and never which."""

import numpy as np
import pytest

from conformance.core.engine import Submission
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.rounds import Hints
from conformance.core.schedule import Request
from conformance.core.trace import FinishReason
from conformance.reference import drafting
from conformance.reference.engine import Makers
from conformance.reference.prefill import Mixed, Padded, Solo

PROMPTS = {"a": (3, 1, 4, 1, 5, 9, 2, 6, 5), "b": (2, 7), "c": (1,), "d": (8, 2, 8, 1, 8, 2)}
RIGHT = (3, 0, 2, 1)


class Plain:
    makers = Makers(lambda sampler: None, lambda processors: [])


ENGINES = [type(base.__name__, (Plain, base), {}) for base in (Solo, Padded, Mixed)]


def with_drafts(*right, block=4, **options):
    return EngineOptions(drafting=Drafting(drafting.KIND, block, right), **options)


def play(engine, streams, drafted, steps=99):
    for _ in range(steps):
        if not engine.stages():
            return
        step = engine.step()
        drafted.append(dict(step.drafted))
        for event in step.events:
            streams.setdefault(event.request_id, []).append(event)


def hints(tokens):
    """Wrong tokens are the ones before the right ones."""
    return Hints(tuple(tokens), tuple(abs(token - 1) for token in tokens))


def submissions(model, solo, prompts, count):
    return [
        Submission(Request(name, prompt, count), hints=hints(solo(model, prompt, count)[0]))
        for name, prompt in prompts.items()
    ]


@pytest.mark.parametrize("engine_class", ENGINES, ids=lambda engine: engine.__name__)
@pytest.mark.parametrize("right", [RIGHT, (4,), (0,), ()], ids=str)
def test_it_is_lossless_whatever_is_drafted(model, solo, tiny, engine_class, right):
    draft = tiny(*model.layers, seed=1)
    options = with_drafts(*right, prefill_step_size=3, completion_batch_size=3)
    engine = engine_class(model, options, draft_model=draft)
    engine.insert(submissions(model, solo, PROMPTS, 7))
    streams, drafted = {}, []
    play(engine, streams, drafted, steps=4)
    engine.insert(submissions(model, solo, {"late": (4, 6, 6, 9, 2)}, 5))
    play(engine, streams, drafted)
    for name, prompt in (*PROMPTS.items(), ("late", (4, 6, 6, 9, 2))):
        count = 5 if name == "late" else 7
        tokens, logprobs = solo(model, prompt, count)
        assert [event.token for event in streams[name]] == tokens
        got = np.stack([event.logprobs for event in streams[name]])
        assert np.abs(got - logprobs).max() < 1e-4
        assert streams[name][-1].finish_reason is FinishReason.LENGTH
    assert max(sum(d.values()) for d in drafted) >= 3
    assert engine.cache_bytes() == 0


def test_right_drafts_save_passes_and_wrong_ones_cost_none(tiny, solo):
    counts = {}
    for right in (4, 0):
        model = tiny("keys")
        engine = ENGINES[1](model, with_drafts(right), draft_model=tiny("keys", seed=1))
        engine.insert(submissions(model, solo, {"a": PROMPTS["a"]}, 9))
        model.calls.clear()
        play(engine, {}, [])
        counts[right] = len(model.calls)
    assert counts == {4: 1 + 3, 0: 1 + 9}


def test_a_model_drafts_for_itself_what_it_then_accepts(tiny, solo):
    model = tiny("keys", "state")
    engine = ENGINES[1](model, with_drafts())
    engine.insert(submissions(model, solo, {"a": PROMPTS["a"]}, 8))
    streams, drafted = {}, []
    play(engine, streams, drafted)
    # Each round gives its draft and one token more.
    assert [count for d in drafted for count in d.values()] == [3, 3]
    assert [event.token for event in streams["a"]] == solo(model, PROMPTS["a"], 8)[0]


def test_processors_and_stops_know_nothing_of_rejected_drafts(tiny, solo):
    model = tiny("keys", "window")
    seen = []

    def watch(tokens, logits):
        seen.append(tokens.tolist())
        return logits

    class Watched(Padded):
        makers = Makers(lambda sampler: None, lambda processors: [watch])

    engine = Watched(model, with_drafts(*RIGHT), draft_model=tiny("keys", seed=1))
    engine.insert(submissions(model, solo, {"a": PROMPTS["a"]}, 9))
    streams = {}
    play(engine, streams, [])
    tokens = [event.token for event in streams["a"]]
    assert seen == [[*PROMPTS["a"], *tokens[:count]] for count in range(9)]


def test_a_stop_within_a_draft_ends_the_request_there(tiny, solo):
    model = tiny("keys")
    tokens, _ = solo(model, PROMPTS["a"], 9)
    request = Request("a", PROMPTS["a"], 9, stop=(tuple(tokens[1:3]),))
    engine = ENGINES[1](model, with_drafts(4), draft_model=tiny("keys", seed=1))
    engine.insert([Submission(request, hints=hints(tokens))])
    streams = {}
    play(engine, streams, [])
    assert [event.token for event in streams["a"]] == tokens[:3]
    assert streams["a"][-1].finish_reason is FinishReason.STOP


def test_drafts_that_stay_in_the_cache_show(tiny, solo, monkeypatch):
    """What these tests look at does change when a rejected draft is not taken back."""
    model = tiny("keys")
    monkeypatch.setattr("mlx_lm.models.cache.KVCache.trim", lambda self, count: count)
    engine = ENGINES[1](model, with_drafts(1), draft_model=tiny("keys", seed=1))
    engine.insert(submissions(model, solo, {"a": PROMPTS["a"]}, 9))
    streams = {}
    play(engine, streams, [])
    got = np.stack([event.logprobs for event in streams["a"]])
    assert np.abs(got - solo(model, PROMPTS["a"], 9)[1]).max() > 1e-2


def test_other_drafters_are_refused_in_words(tiny):
    with pytest.raises(Unsupported, match="'mtp'"):
        ENGINES[0](tiny("keys"), EngineOptions(drafting=Drafting("mtp")))


@pytest.mark.parametrize(("engine_class", "pads"), [(ENGINES[0], False), (ENGINES[1], True)])
def test_drafts_are_padded_but_by_the_engine_that_never_pads(tiny, solo, engine_class, pads):
    model = tiny("keys")
    engine = engine_class(model, with_drafts(*RIGHT), draft_model=tiny("keys", seed=1))
    prompts = dict.fromkeys("abcd", PROMPTS["a"])
    # One row may produce but two tokens, so that its draft is shorter than the others'.
    short = Submission(Request("short", PROMPTS["a"], 2), hints=hints((1, 2)))
    engine.insert([*submissions(model, solo, prompts, 7), short])
    while not engine.decoding:
        engine.step()
    model.calls.clear()
    engine.step()
    verifying = sorted(call for call in model.calls if call[1] > 1)
    assert verifying == ([(5, 4)] if pads else [(1, 2), (4, 4)])
