"""The public function ``batch_generate`` as an engine: tokens from its texts, logprobs by row."""

import mlx.core as mx
import numpy as np
import pytest
from msgspec.structs import replace

from conformance.core.engine import Capability, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Media, Request, Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.plugins.mlx_vlm.batch_generate import MlxVlmBatchGenerate, _Recorder, _Row
from conformance.plugins.mlx_vlm.inputs import compose

ONE, TWO = Request("one", (4, 5, 6, 7), 4), Request("two", (20, 21, 22, 23), 2)


def shown(model, name, *, content=0, size=(16, 16), last=True):
    words, image = (5, 6, 7, 9), Media("image", size, content)
    prompt, media = compose(model, [words, image] if last else [image, words])
    return Request(name, prompt, 3, media=media)


def decode(model, *requests, forced=None):
    engine = MlxVlmBatchGenerate(model, EngineOptions())
    engine.insert([Submission(r, (forced or {}).get(r.request_id)) for r in requests])
    assert set(engine.stages().values()) == {Stage.QUEUED}
    output = engine.step()
    assert engine.step().events == ()
    engine.close()
    return output


def of(output, name):
    return [event for event in output.events if event.request_id == name]


def test_it_cannot_be_joined_or_left():
    absent = {Capability.LATE_JOIN, Capability.CANCEL, Capability.SLOTS, Capability.STAGES}
    assert not absent & MlxVlmBatchGenerate.capabilities


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_request_gets_its_single_stream(library, model, order):
    requests = [(ONE, TWO)[index] for index in order]
    output = decode(model, *requests)
    for request in requests:
        options = EngineOptions()
        want = library.single_stream(model, request, options=options, steps=request.max_tokens)
        events = of(output, request.request_id)
        assert tuple(e.token for e in events) == want.stream.tokens
        assert [e.finish_reason is not None for e in events] == [False] * (len(events) - 1) + [True]
        got = np.stack([e.logprobs for e in events])
        assert np.abs(got - want.stream.logprobs).max() < 1e-4


def test_rows_are_forced_apart(model):
    forced = {"one": (11, 12, 13, 14), "two": (15, 16)}
    output = decode(model, ONE, TWO, forced=forced)
    assert {n: tuple(e.token for e in of(output, n)) for n in forced} == forced


def test_images_of_two_sizes_and_a_text_keep_their_rows(library, model):
    small, large = shown(model, "small"), shown(model, "large", content=1, size=(24, 16))
    output = decode(model, ONE, large, small)
    for request in (ONE, large, small):
        options = EngineOptions()
        want = library.single_stream(model, request, options=options, steps=request.max_tokens)
        assert tuple(e.token for e in of(output, request.request_id)) == want.stream.tokens


def test_an_image_where_the_function_would_not_put_it_is_refused(model):
    with pytest.raises(Unsupported, match="the prompt of 'first' as it is"):
        decode(model, shown(model, "first", last=False))
    middle = [(5, 6), Media("image", (16, 16)), (7,)]
    prompt, media = compose(model, middle)
    with pytest.raises(Unsupported, match="one image beside the text"):
        decode(model, Request("middle", prompt, 2, media=media))


def test_all_rows_get_the_sampler_and_processors_of_the_options(library, model):
    sampler, bias = Sampler("rank", {"rank": 1}), Processor("library", {"logit_bias": {"7": 1.0}})
    rows = [replace(request, sampler=sampler, processors=(bias,)) for request in (ONE, TWO)]
    engine = MlxVlmBatchGenerate(model, EngineOptions(sampler=sampler, processors=(bias,)))
    engine.insert([Submission(row) for row in rows])
    output = engine.step()

    def alone(request):
        options = EngineOptions()
        found = library.single_stream(model, request, options=options, steps=request.max_tokens)
        return found.stream.tokens

    for row in rows:
        assert tuple(e.token for e in of(output, row.request_id)) == alone(row)
    assert alone(rows[0]) != alone(ONE)


def test_the_recorder_follows_rows_that_join_others():
    rows = [_Row(Request(name, (1,) * n, 3), None) for n, name in enumerate("ab", 1)]
    recorder = _Recorder([rows], lambda logprobs: mx.argmax(logprobs, axis=-1))

    def call(*positions):
        logprobs = mx.array([[0.0, float(position), 0.5] for position in positions])
        recorder.sample_target(logprobs, row_ids=[0] * len(positions), positions=list(positions))

    for positions in ((0,), (1,), (0,), (2, 1), (3, 2), (3,)):
        call(*positions)
    assert [row.tokens for row in rows] == [[2, 1, 1, 1]] * 2
