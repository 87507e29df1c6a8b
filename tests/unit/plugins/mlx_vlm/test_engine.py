"""``BatchGenerator``, fed as the server feeds it, as an engine."""

import numpy as np
import pytest
from msgspec.structs import replace

from conformance.core.engine import Capability, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Media, Removal, Request, Schedule, Stage, Trigger
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.engine import MlxVlmEngine
from conformance.plugins.mlx_vlm.inputs import compose
from conformance.run.runner import play

LONG, SHORT = Request("long", tuple(range(1, 10)), 4), Request("short", (20, 21), 2)
PIECES = EngineOptions(prefill_step_size=3)


@pytest.fixture
def image(model):
    prompt, media = compose(model, [(5, 6, 7), Media("image", (16, 16)), (9, 8)])
    return Request("image", prompt, 3, media=media)


def run(library, model, *arrivals, options=PIECES, forced=None, removals=()):
    meter = library.meter(model)
    schedule = Schedule("s", arrivals, tuple(removals), options=options)
    trace = play(MlxVlmEngine, model, schedule, meter=meter, forced=forced)
    assert trace.failure is None
    assert trace.missed == ()
    return trace


def solo(library, model, request, options=PIECES):
    found = library.single_stream(model, request, options=options, steps=request.max_tokens)
    return found.stream


def processed(trace):
    total = {}
    for step in trace.steps:
        for name, count in step.output.processed.items():
            total[name] = total.get(name, 0) + count
    return total


def test_it_lacks_what_the_library_lacks_and_does_not_weigh_memory():
    lacking = frozenset(Capability) - MlxVlmEngine.capabilities
    assert lacking == {
        Capability.SAMPLERS,
        Capability.STOP,
        Capability.SEGMENTS,
        Capability.PREFIX,
        Capability.SAVED,
        Capability.WEIGHED,
        Capability.STORED,
        Capability.COMPLETIONS,
        Capability.SERVED,
    }


def test_events_are_the_single_streams(library, model, image):
    trace = run(library, model, Arrival((LONG, image, SHORT)))
    for request in (LONG, image, SHORT):
        got, want = trace.stream(request.request_id), solo(library, model, request)
        assert got.tokens == want.tokens
        assert got.finish_reason is FinishReason.LENGTH
        assert np.abs(got.logprobs - want.logprobs).max() < 1e-4
        chosen = np.take_along_axis(got.logprobs, np.array(got.tokens)[:, None], axis=-1)
        assert np.allclose(got.token_logprobs, chosen[:, 0])


def test_processed_counts_add_up_to_the_prompts(library, model, image):
    trace = run(library, model, Arrival((LONG, image, SHORT)))
    assert processed(trace) == {"long": 9, "image": len(image.prompt), "short": 2}


def test_stages_go_from_the_queue_to_decode(library, model):
    trace = run(library, model, Arrival((LONG,)))
    stages = [step.stages["long"] for step in trace.steps]
    order = [Stage.QUEUED, Stage.PREFILL, Stage.DECODE, Stage.FINISHED]
    assert [stage for stage in order if stage in stages] == order


def test_each_row_is_fed_its_own_forced_tokens(library, model):
    forced = {"long": (11, 12, 13, 14), "short": (15, 16)}
    trace = run(library, model, Arrival((LONG, SHORT)), forced=forced)
    assert {n: trace.stream(n).tokens for n in forced} == forced


def test_forced_rows_that_join_late_are_fed_theirs(library, model):
    late = Request("late", tuple(range(30, 37)), 3)
    arrivals = (Arrival((LONG,)), Arrival((late,), Trigger("long", Stage.DECODE, 1)))
    forced = {"long": (11, 12, 13, 14), "late": (15, 16, 17)}
    trace = run(library, model, *arrivals, forced=forced)
    assert {n: trace.stream(n).tokens for n in forced} == forced


def test_a_processor_is_of_its_own_request(library, model):
    biased = (Processor("library", {"logit_bias": {"9": 99.0}}),)
    short = Request("short", SHORT.prompt, 2, processors=biased)
    trace = run(library, model, Arrival((short, LONG)))
    assert trace.stream("short").tokens == (9, 9)
    assert trace.stream("long").tokens == solo(library, model, LONG).tokens


def test_removal_in_decode_leaves_the_other_row_unchanged(library, model):
    removal = Removal(("short",), Trigger("short", Stage.DECODE, 1))
    trace = run(library, model, Arrival((LONG, SHORT)), removals=[removal])
    assert len(trace.events("short")) == 1
    assert trace.stream("long").tokens == solo(library, model, LONG).tokens


def test_all_bytes_are_given_back(library, model):
    trace = run(library, model, Arrival((LONG, SHORT)))
    assert max(step.cache_bytes for step in trace.steps) > 0
    assert trace.cache_bytes_at_end == 0


def test_a_run_starts_from_a_reset_model(library, model, image):
    first = run(library, model, Arrival((image,)))
    again = run(library, model, Arrival((image,)))
    assert np.array_equal(first.stream("image").logprobs, again.stream("image").logprobs)
    assert "_rope_deltas" in model.changed()  # what the last run left
    MlxVlmEngine(model, PIECES)
    assert model.changed() == ()


def test_an_unknown_uid_is_named_and_not_hidden(library, model):
    engine = MlxVlmEngine(model, PIECES)
    engine.insert([Submission(SHORT)])
    engine._ids.clear()
    engine._lengths.clear()
    names = {event.request_id for _ in range(6) for event in engine.step().events}
    engine.close()
    assert names == {"unknown uid 0"}


def test_options_that_a_release_does_not_take_are_refused():
    class Old:
        def __init__(self, model, processor, *, prefill_step_size): ...

    with pytest.raises(compat.Unsupported, match="completion_batch_size"):
        compat._check(Old, {"prefill_step_size": 1, "completion_batch_size": 2}, "BatchGenerator")


def test_rows_without_their_own_get_the_generators_sampler_and_processors(library, model):
    sampler, bias = Sampler("rank", {"rank": 1}), Processor("library", {"logit_bias": {"7": 1.0}})
    given = {"sampler": sampler, "processors": (bias,)}
    rows = [replace(LONG, **given), replace(SHORT, **given)]
    own = Request("own", (30, 31, 32), 3, sampler, (bias, bias))
    options = EngineOptions(sampler=sampler, processors=(bias,))
    late = Arrival((own,), Trigger("long", Stage.DECODE, 1))
    trace = run(library, model, Arrival(tuple(rows)), late, options=options)
    for row in (*rows, own):
        assert trace.stream(row.request_id).tokens == solo(library, model, row).tokens
    assert solo(library, model, rows[0]).tokens != solo(library, model, LONG).tokens
