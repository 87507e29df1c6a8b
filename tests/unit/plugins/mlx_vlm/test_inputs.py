"""Prompts of text and media: ids, spans, and the arguments that the library's server makes."""

from types import SimpleNamespace

import mlx.core as mx
import msgspec
import pytest
from mlx_vlm import prompt_utils
from mlx_vlm.server.generation import ResponseGenerator

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import load_family
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm.inputs import compose, embed, inputs_of, unlike_chat
from conformance.plugins.mlx_vlm.plugin import FAMILIES
from conformance.plugins.servers.mlx_vlm_server import MlxVlmServer
from conformance.scenarios.build import at_once

IMAGE = Media("image", (16, 16))


@pytest.fixture
def request_with_image(model):
    prompt, media = compose(model, [(5, 6, 7), IMAGE, (9, 8)])
    return Request("a", prompt, 4, media=media)


def test_spans_are_where_the_processor_put_its_tokens(request_with_image):
    (media,) = request_with_image.media
    start, stop = media.span
    prompt = request_with_image.prompt
    assert (prompt[:start], prompt[stop:]) == ((5, 6, 7), (9, 8))
    assert set(prompt[start:stop]) == {250, 252, 253}


def test_text_alone_needs_no_processor(model):
    assert compose(model, [(5, 6), (7,)]) == ((5, 6, 7), ())
    made = inputs_of(model, Request("a", (5, 6, 7), 4))
    assert made.input_ids.tolist() == [[5, 6, 7]]
    assert made.attention_mask.tolist() == [[1, 1, 1]]
    assert made.pixel_values is None


def test_several_media_keep_their_order(model):
    parts = [(5,), IMAGE, (6,), Media("image", (24, 16), 1), (7,)]
    prompt, media = compose(model, parts)
    lengths = [m.span[1] - m.span[0] for m in media]
    assert lengths[0] < lengths[1]
    assert prompt[0] == 5
    assert prompt[-1] == 7


def test_a_request_from_a_file_is_processed_again(model, request_with_image):
    before = inputs_of(model, request_with_image)
    model.inputs.clear()
    model.composed.clear()
    again = inputs_of(model, request_with_image)
    assert again is not before
    assert mx.array_equal(again.pixel_values, before.pixel_values)


def test_a_prompt_that_the_processor_would_not_write_is_refused(model, request_with_image):
    wrong = (*request_with_image.prompt[:4], 250, *request_with_image.prompt[4:])
    media = (msgspec.structs.replace(request_with_image.media[0], span=(3, 10)),)
    with pytest.raises(ModelError, match="the processor made"):
        inputs_of(model, Request("a", wrong, 4, media=media))


def test_what_a_processor_begins_every_prompt_with_is_no_medium(library):
    family = load_family(FAMILIES / "deepseek_vl_v2.json")
    beginning = library.load(family, dtype="float32", seed=0)
    prompt, (media,) = compose(beginning, [(5, 6, 7), IMAGE, (9, 8)])
    start, stop = media.span
    assert (prompt[:start], prompt[stop:]) == ((248, 5, 6, 7), (9, 8))
    beginning.inputs.clear()
    beginning.composed.clear()
    again = inputs_of(beginning, Request("a", prompt, 4, media=(media,)))
    assert again.input_ids.tolist() == [list(prompt)]


def test_media_that_the_family_does_not_take_are_refused(model):
    with pytest.raises(Unsupported, match="takes no audio"):
        compose(model, [(5,), Media("audio", (400,))])


@pytest.mark.parametrize("text", [True, False])
def test_the_arguments_are_those_of_the_librarys_server(model, request_with_image, text):
    request = Request("t", (5, 6, 7), 4) if text else request_with_image
    made = inputs_of(model, request)
    raw = {"input_ids": made.input_ids, "pixel_values": made.pixel_values, **made.extra}
    raw["attention_mask"] = made.attention_mask
    server = SimpleNamespace(model=model.fresh().model, vision_cache=None)
    ids, want = ResponseGenerator._gpu_embed(server, raw)
    got = embed(model.fresh(), made)
    assert ids.tolist() == [list(request.prompt)]
    assert got.keys() == want.keys()
    assert all(mx.array_equal(got[name], want[name]) for name in want)


def test_a_chat_is_its_message_s_text_unless_the_processor_writes_more(model, monkeypatch):
    """As that of kimi_k3 does, whatever the checkpoint's template is."""
    assert unlike_chat(model, images=2) == ""
    wordy = lambda *_, **__: "User: t1 Assistant:"  # noqa: E731
    monkeypatch.setattr(type(model.processor), "apply_chat_template", wordy, raising=False)
    assert "'User: t1 Assistant:'" in unlike_chat(model, images=0)


def test_a_chat_that_cannot_be_written_is_the_server_s_failure(model, monkeypatch):
    def fails(*_, **__):
        raise ValueError("no template")

    monkeypatch.setattr(type(model.processor), "apply_chat_template", fails, raising=False)
    assert unlike_chat(model, images=0) == ""


def test_a_model_of_one_image_a_chat_is_asked_with_no_more(model, monkeypatch):
    monkeypatch.setattr(prompt_utils, "SINGLE_IMAGE_ONLY_MODELS", {model.model.config.model_type})
    assert unlike_chat(model, images=1) == ""
    request = Request("a", (5,), 4, media=(IMAGE, IMAGE))
    with pytest.raises(Unsupported, match="does not support multi-image chat"):
        MlxVlmServer.check(model, at_once("twice", request), {})
