"""``BatchGenerator`` as an engine, on the smallest family."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from conformance.core.engine import Capability, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
)
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason
from conformance.plugins.mlx_lm import compat, engine
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.run.runner import play
from conformance.scenarios.request_options import _PROBE_GROUPS

LONG, SHORT = Request("long", tuple(range(1, 10)), 4), Request("short", (20, 21), 2)
PIECES = EngineOptions(prefill_step_size=3)


@pytest.fixture(scope="module")
def solo(model):
    """The single stream of a request."""
    return lambda request, **more: (
        MlxLm()
        .single_stream(model, request, options=EngineOptions(), steps=request.max_tokens, **more)
        .stream
    )


def run(model, *arrivals, options=PIECES, forced=None, removals=()):
    meter = MlxLm().meter(model)
    schedule = Schedule("s", arrivals, tuple(removals), options=options)
    trace = play(MlxLmEngine, model, schedule, meter=meter, forced=forced)
    assert trace.failure is None
    assert trace.missed == ()
    return trace


def processed(trace):
    total = {}
    for step in trace.steps:
        for name, count in step.output.processed.items():
            total[name] = total.get(name, 0) + count
    return total


def test_it_can_do_everything():
    foreign = {Capability.BUDGETS, Capability.MEDIA, Capability.QUANTIZED, Capability.SPECULATIVE}
    foreign |= {Capability.POOLED, Capability.TENANTS, Capability.COMPLETIONS, Capability.SERVED}
    assert MlxLmEngine.capabilities == frozenset(Capability) - foreign
    assert MlxLmEngine.probes()


def test_events_are_the_single_streams(model, solo):
    trace = run(model, Arrival((LONG, SHORT)))
    for request in (LONG, SHORT):
        got, want = trace.stream(request.request_id), solo(request)
        assert got.tokens == want.tokens
        assert got.finish_reason is FinishReason.LENGTH
        assert np.abs(got.logprobs - want.logprobs).max() < 1e-4
        chosen = np.take_along_axis(got.logprobs, np.array(got.tokens)[:, None], axis=-1)
        assert np.array_equal(got.token_logprobs, chosen[:, 0])


def test_processed_counts_add_up_to_the_prompts(model):
    trace = run(model, Arrival((LONG, SHORT)))
    assert processed(trace) == {"long": 9, "short": 2}


def test_stages_go_from_the_queue_to_decode(model):
    trace = run(model, Arrival((LONG,)))
    stages = [step.stages["long"] for step in trace.steps]
    order = [Stage.QUEUED, Stage.PREFILL, Stage.DECODE, Stage.FINISHED]
    assert [stage for stage in order if stage in stages] == order
    assert stages == sorted(stages, key=order.index)
    assert stages.count(Stage.PREFILL) == 3  # pieces of 3, 3 and 2


def test_rows_are_those_of_the_decoding_batch(model):
    trace = run(model, Arrival((LONG, SHORT), Trigger()), options=EngineOptions())
    both = [step.rows for step in trace.steps if len(step.rows) == 2]
    assert both
    assert all(set(rows.values()) == {0, 1} for rows in both)
    alone = [step.rows for step in trace.steps if set(step.rows) == {"long"}]
    assert alone[-1] == {"long": 0}


def test_bytes_are_held_while_rows_live_and_none_at_the_end(model):
    trace = run(model, Arrival((LONG, SHORT)))
    assert max(step.cache_bytes for step in trace.steps) > 0
    assert trace.cache_bytes_at_end == 0


def test_forced_tokens_come_back(model):
    forced = {"long": (5, 6, 7, 8), "short": (9, 10)}
    trace = run(model, Arrival((LONG, SHORT)), forced=forced)
    assert {name: trace.stream(name).tokens for name in forced} == forced


def test_forced_logprobs_are_those_of_the_fed_tokens(model, solo):
    trace = run(model, Arrival((LONG,)), forced={"long": (5, 6, 7, 8)})
    want = solo(LONG, forced=(5, 6, 7, 8))
    assert np.abs(trace.stream("long").logprobs - want.logprobs).max() < 1e-4


def test_a_removed_request_gives_no_output_and_the_other_goes_on(model, solo):
    removal = Removal(("long",), Trigger("long", Stage.DECODE, 1))
    trace = run(model, Arrival((LONG, SHORT)), removals=[removal])
    assert trace.stream("long").tokens == solo(LONG).tokens[:1]
    assert trace.stream("long").finish_reason is None
    assert trace.stream("short").tokens == solo(SHORT).tokens
    assert trace.cache_bytes_at_end == 0


def test_stop_sequences_end_a_request(model, solo):
    tokens = solo(LONG).tokens
    stopping = Request("long", LONG.prompt, 4, stop=(tokens[1:3],))
    stream = run(model, Arrival((stopping, SHORT))).stream("long")
    assert stream.finish_reason is FinishReason.STOP
    assert stream.tokens == tokens[:3]


@pytest.mark.parametrize("after", [None, 2])
def test_a_request_goes_on_from_a_finished_or_a_live_cache(model, solo, after):
    more = Request("more", (3, 4), 3, continues=Continuation("long", after))
    when = (
        Trigger("long", Stage.FINISHED) if after is None else Trigger("long", Stage.DECODE, after)
    )
    trace = run(model, Arrival((LONG,)), Arrival((more,), when))
    produced = solo(LONG).tokens[:after]
    whole = Request("whole", (*LONG.prompt, *produced, 3, 4), 3)
    assert trace.stream("more").tokens == solo(whole).tokens
    assert trace.stream("long").tokens == solo(LONG).tokens


def test_segments_give_what_the_whole_prompt_gives(model, solo):
    pieces = Request("long", LONG.prompt, 4, segments=(2, 6, 1))
    trace = run(model, Arrival((pieces, SHORT)))
    assert trace.stream("long").tokens == solo(LONG).tokens
    assert trace.stream("short").tokens == solo(SHORT).tokens


@pytest.fixture
def inserted(model, monkeypatch):
    """Insert requests and see with which options the generator was called."""
    engine = MlxLmEngine(model, PIECES)
    calls = []

    def insert(prompts, **options):
        calls.append(options)
        return list(range(len(prompts)))

    monkeypatch.setattr(engine._generator, "insert", insert)

    def look(*submissions):
        engine.insert(list(submissions))
        return calls[-1]

    yield look
    engine.close()


def test_options_are_left_out_where_no_request_has_them(inserted):
    assert inserted(Submission(LONG), Submission(SHORT)) == {"max_tokens": [4, 2]}


def test_equal_library_samplers_share_one_object_and_seeded_ones_do_not(inserted):
    def sampled(name, sampler):
        return Submission(Request(name, (1, 2), 2, sampler))

    chain = {"temp": 0.7, "top_k": 1}
    seeded = {"temperature": 0.7, "seed": 1}
    a, b, c, d, e, f = inserted(
        sampled("a", Sampler("library", chain)),
        sampled("b", Sampler("library", chain)),
        sampled("c", Sampler("library", {"temp": 0.8, "top_k": 1})),
        sampled("d", Sampler("seeded", seeded)),
        sampled("e", Sampler("seeded", seeded)),
        Submission(Request("f", (1, 2), 2)),
    )["samplers"]
    assert a is b
    assert a is not c
    assert d is not e
    assert f is None


def test_forced_tokens_take_the_place_of_a_sampler(inserted):
    sampled = Request("a", (1, 2), 2, Sampler("library", {"temp": 0.7}))
    (sampler,) = inserted(Submission(sampled, forced=(5, 6)))["samplers"]
    assert type(sampler).__name__ == "ForcedSampler"


def test_closing_closes_the_generator(model, monkeypatch):
    engine, closed = MlxLmEngine(model, PIECES), []
    close = engine._generator.close
    monkeypatch.setattr(engine._generator, "close", lambda: closed.append(1) or close())
    engine.close()
    assert closed == [1]


def test_an_unknown_id_is_not_hidden(model):
    engine = MlxLmEngine(model, PIECES)
    engine.insert([Submission(SHORT)])
    engine._ids.clear()
    names = {event.request_id for _ in range(6) for event in engine.step().events}
    engine.close()
    assert len(names) == 1
    assert names.pop().startswith("unknown uid ")


SECOND = Sampler("rank", {"rank": 1})
BIAS = (Processor("library", {"logit_bias": {"7": 1.0}}),)
DEFAULTS = EngineOptions(sampler=SECOND, processors=BIAS)


def with_defaults(request):
    return replace(request, sampler=SECOND, processors=BIAS)


def test_rows_without_their_own_get_the_generators_sampler_and_processors(model, solo, inserted):
    requests = [with_defaults(LONG), with_defaults(SHORT)]
    trace = run(model, Arrival(tuple(requests)), options=DEFAULTS)
    for request in requests:
        assert trace.stream(request.request_id).tokens == solo(request).tokens
    assert solo(requests[0]).tokens != solo(LONG).tokens


def test_what_equals_the_generators_own_is_left_out(model, monkeypatch):
    calls = []
    engine = MlxLmEngine(model, DEFAULTS)
    insert = engine._generator.insert
    monkeypatch.setattr(
        engine._generator, "insert", lambda *a, **o: calls.append(o) or insert(*a, **o)
    )
    engine.insert([Submission(with_defaults(LONG))])
    assert calls[0].keys() & {"samplers", "logits_processors"} == set()
    # Beside one with its own, all of a call have theirs.
    other = replace(with_defaults(SHORT), processors=())
    engine.insert([Submission(with_defaults(replace(LONG, request_id="x"))), Submission(other)])
    assert "logits_processors" not in calls[1]
    own = replace(with_defaults(SHORT), request_id="y", processors=BIAS * 2)
    engine.insert([Submission(with_defaults(replace(LONG, request_id="z"))), Submission(own)])
    assert [len(each) for each in calls[2]["logits_processors"]] == [1, 2]
    engine.close()


@pytest.fixture
def generator(model):
    made = compat.make_generator(model, EngineOptions())
    made.insert([[1, 2, 3], [4, 5]], max_tokens=[9, 9])
    made.next()
    made.next()
    yield made
    made.close()


def planted(monkeypatch, call):
    monkeypatch.setattr(engine, "PROBES", {"planted": call})


def test_a_refusal_that_changes_nothing(generator, monkeypatch):
    def refuse(_):
        raise ValueError("the prompt is empty")

    planted(monkeypatch, refuse)
    found = engine.probe(generator, "planted")
    assert (found.kind, found.changed) == ("planted", ())
    assert found.error == "ValueError: the prompt is empty"


def test_an_accepted_call_and_what_it_changed(generator, monkeypatch):
    planted(monkeypatch, lambda g: g.insert([[7, 8]], max_tokens=[3]))
    found = engine.probe(generator, "planted")
    assert found.error is None
    assert [change.partition(":")[0] for change in found.changed] == ["uid counter", "queue"]


def test_a_refusal_after_half_of_the_work(generator, monkeypatch):
    def half(g):
        g._uid_count += 2
        raise KeyError("x")

    planted(monkeypatch, half)
    found = engine.probe(generator, "planted")
    assert found.error == "KeyError: 'x'"
    assert found.changed == ("uid counter: 2 became 4",)


def test_random_numbers_that_cannot_be_drawn_any_more_are_named_and_then_put_right(
    generator, monkeypatch
):
    @partial(mx.compile, inputs=mx.random.state)
    def refuse(_):
        raise ValueError("out of range")

    planted(monkeypatch, lambda _: refuse(mx.zeros(1)))
    found = engine.probe(generator, "planted")
    assert found.error == "ValueError: out of range"
    assert found.changed == ("random numbers: can be drawn became can be drawn no more",)
    assert mx.random.uniform().item() < 1


@pytest.mark.parametrize("kind", sorted(engine.PROBES))
def test_each_probe_ends_and_is_no_mistake_of_ours(generator, kind):
    """A wrong keyword of ours would be refused with a TypeError that names it."""
    found = engine.probe(generator, kind)
    assert found.kind == kind
    assert "unexpected keyword" not in (found.error or "")


def test_every_probe_belongs_to_a_group_that_a_scenario_makes():
    prefixes = tuple(prefix for group in _PROBE_GROUPS.values() for prefix in group)
    assert [kind for kind in engine.PROBES if not kind.startswith(prefixes)] == []
