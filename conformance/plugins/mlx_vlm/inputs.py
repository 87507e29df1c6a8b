"""The processor's output for a request, and the embeddings that the library's server makes of it.

A prompt is text and media. The processor replaces each medium by tokens that are not among the
family's text tokens, so each run of them is the span of one medium.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np
from mlx_vlm.prompt_utils import apply_chat_template
from mlx_vlm.utils import prepare_inputs

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Family
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm.media import draw
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.processor_files import text_of, word
from conformance.plugins.mlx_vlm.stand_ins import kinds

Part = tuple[int, ...] | Media
_ONE_IMAGE = "does not support multi-image chat"
# The names of media in the arguments of ``prepare_inputs``.
_ARGUMENTS = {"image": "images", "video": "videos", "audio": "audio"}


@dataclass(frozen=True)
class Inputs:
    """A processed prompt.

    Attributes:
        input_ids: int32 ``[1, length]``.
        pixel_values: the input of the vision tower, ``None`` without images.
        attention_mask: ``[1, length]``, all ones.
        extra: the processor's other outputs, by name (grids, sizes, features).
    """

    input_ids: mx.array
    pixel_values: Any
    attention_mask: mx.array
    extra: dict[str, Any]


def compose(
    loaded: LoadedModel, parts: Sequence[Part]
) -> tuple[tuple[int, ...], tuple[Media, ...]]:
    """The token ids of a prompt of text and media, and the media with their spans.

    Raises:
        Unsupported: the family takes no such media.
        ModelError: the processor left out a medium or added one.
    """
    media = [part for part in parts if isinstance(part, Media)]
    if not media:
        return tuple(token for part in parts for token in part), ()  # type: ignore[union-attr]
    family = loaded.family
    for one in media:
        if one.kind not in family.facts.modalities:
            raise Unsupported(f"{family.name} takes no {one.kind}")
    if tuple(parts) in loaded.composed:
        known: tuple[tuple[int, ...], tuple[Media, ...]] = loaded.composed[tuple(parts)]
        return known
    made = _process(loaded, parts)
    ids: Any = made.input_ids[0].tolist()
    prompt = tuple(int(token) for token in ids)
    begin = _begin(loaded)
    spans = [(a + begin, b + begin) for a, b in _spans(prompt[begin:], family.tokens)]
    if not spans and family.facts.required:
        spans = [(0, 0)] * len(media)
    if len(spans) != len(media):
        raise ModelError(
            f"{family.name}: the processor was given {len(media)} media and put {len(spans)} runs "
            f"of its own tokens into the prompt {prompt}"
        )
    placed = tuple(
        msgspec.structs.replace(one, span=span) for one, span in zip(media, spans, strict=True)
    )
    loaded.inputs[prompt, placed] = made
    loaded.composed[tuple(parts)] = prompt, placed
    return prompt, placed


def inputs_of(loaded: LoadedModel, request: Request) -> Inputs:
    """The processed prompt of a request.

    Raises:
        ModelError: the processor makes different tokens from the prompt's text and media.
    """
    if not request.media:
        ids = mx.array(request.prompt, mx.int32)[None]
        return Inputs(ids, None, mx.ones(ids.shape, mx.int32), {})
    key = (request.prompt, request.media)
    if key not in loaded.inputs:
        end, parts = _begin(loaded), list[Part]()
        for media in request.media:
            parts += [request.prompt[end : media.span[0]], media]
            end = media.span[1]
        again, _ = compose(loaded, [*parts, request.prompt[end:]])
        if again != request.prompt:
            raise ModelError(
                f"{loaded.family.name}: the processor made {again} of a prompt that says "
                f"{request.prompt}"
            )
        loaded.inputs[key] = loaded.inputs.pop((again, request.media))
    made: Inputs = loaded.inputs[key]
    return made


def embed(loaded: LoadedModel, made: Inputs) -> dict[str, Any]:
    """The prompt's keyword arguments for ``BatchGenerator.insert``, embeddings among them.

    Source: ``mlx_vlm.server.generation.ResponseGenerator._gpu_embed``.
    """
    embedded = loaded.model.get_input_embeddings(
        made.input_ids, made.pixel_values, mask=made.attention_mask, **made.extra
    )
    given = {name: value for name, value in embedded.to_dict().items() if value is not None}
    return {**made.extra, **given}


def puts_image_last(loaded: LoadedModel) -> bool:
    """Whether the library's chat template writes the image of a prompt after its text."""
    if "image" not in loaded.family.facts.modalities:
        return False
    text = word(loaded.family.tokens[0])
    try:
        written = apply_chat_template(loaded.processor, loaded.model.config, text, num_images=1)
    except Exception:  # noqa: BLE001 - only `batch_generate` needs it, and reports it then
        return False
    return str(written).strip().startswith(text)


def unlike_chat(loaded: LoadedModel, *, images: int) -> str:
    """Why the library does not write a chat as its message's text; empty if it does.

    Some processors write chats by code of their own, whatever the checkpoint's template is, and
    some models have one image in a chat: ``mlx_vlm.prompt_utils.SINGLE_IMAGE_ONLY_MODELS``.
    """
    config, text = loaded.model.config, word(loaded.family.tokens[0])
    try:
        written = str(apply_chat_template(loaded.processor, config, text, num_images=0)).strip()
        apply_chat_template(loaded.processor, config, text, num_images=images)
    except Exception as error:  # noqa: BLE001 - the server fails in the same way, and reports it
        return str(error) if _ONE_IMAGE in str(error) else ""
    if written == text:
        return ""
    written = textwrap.shorten(written, 60, placeholder="...")
    return f"the library writes a chat of {text!r} as {written!r}, so its prompt is not known"


def in_numpy(value: Any) -> Any:
    """The value with the library's arrays converted to NumPy, also in lists."""
    if isinstance(value, mx.array):
        return np.array(value.astype(mx.float32) if value.dtype == mx.bfloat16 else value)
    if isinstance(value, (list, tuple)):
        return [in_numpy(item) for item in value]
    return value


def _process(loaded: LoadedModel, parts: Sequence[Part]) -> Inputs:
    facts = loaded.family.facts
    if facts.stand_in is not None:
        # The family may also have a processor, which then only has to load.
        raw = kinds.process(facts.stand_in, loaded.family, parts)
    elif facts.processor is not None:
        raw = _by_processor(loaded, parts)
    else:
        raise ModelError(f"{loaded.family.name}: has neither a processor nor a stand-in")
    given = {n: v for n, v in raw.items() if n not in ("input_ids", "pixel_values")}
    mask = given.pop("attention_mask", None)
    ids = raw["input_ids"]
    return Inputs(
        ids,
        raw.get("pixel_values"),
        mx.ones(ids.shape, mx.int32) if mask is None else mask,
        {name: value for name, value in given.items() if value is not None},
    )


def _by_processor(loaded: LoadedModel, parts: Sequence[Part]) -> dict[str, Any]:
    processor = loaded.family.facts.processor
    assert processor is not None
    written: list[tuple[int, ...] | str] = []
    media: dict[str, list[Any]] = {}
    for part in parts:
        if isinstance(part, Media):
            media.setdefault(_ARGUMENTS[part.kind], []).append(_as_loaded(part))
            written.append(processor.markers[part.kind])
        else:
            written.append(part)
    raw: dict[str, Any] = prepare_inputs(
        loaded.processor,
        prompts=text_of(written),
        image_token_index=getattr(loaded.model.config, "image_token_index", None),
        add_special_tokens=True,
        **media,
    )
    return raw


def _begin(loaded: LoadedModel) -> int:
    """The number of tokens that the processor puts before every prompt with media."""
    processor = loaded.family.facts.processor
    return processor.begin if processor is not None else 0


def _as_loaded(part: Media) -> Any:
    """The medium in the form that the library passes to processors: videos have channels first."""
    drawn: Any = draw(part)
    return drawn.transpose(0, 3, 1, 2) if part.kind == "video" else drawn


def _spans(prompt: tuple[int, ...], text: tuple[int, int]) -> list[tuple[int, int]]:
    """The runs of tokens that are not text, each as a half-open range of indices."""
    low, high = text
    spans, end = [], 0
    for own, run in itertools.groupby(prompt, key=lambda token: not low <= token < high):
        start, end = end, end + len(list(run))
        if own:
            spans.append((start, end))
    return spans


def plain_request(loaded: LoadedModel, tokens: tuple[int, ...], max_tokens: int) -> Request:
    """A request of these tokens, after the medium that every request of the family needs."""
    kind = loaded.family.facts.required
    if not kind:
        return Request("plain", tokens, max_tokens)
    medium = Media(kind, loaded.family.facts.sizes[kind][0])
    prompt, media = compose(loaded, [medium, tokens])
    return Request("plain", prompt, max_tokens, media=media)


class ModelWithMedium:
    """A model whose calls all attend to one fixed medium; otherwise like ``LoadedModel``."""

    def __init__(self, loaded: LoadedModel) -> None:
        low, _ = loaded.family.tokens
        made = inputs_of(loaded, plain_request(loaded, (low, low + 1), 1))
        output = loaded.language_model(made.input_ids, **embed(loaded.fresh(), made))
        self._loaded = loaded
        self._encoder_outputs = output.encoder_outputs

    @property
    def family(self) -> Family:
        """See ``LoadedModel``."""
        return self._loaded.family

    @property
    def seed(self) -> int:
        """See ``LoadedModel``."""
        return self._loaded.seed

    def cache(self) -> list[Any]:
        """See ``LoadedModel.cache``."""
        return self._loaded.cache()

    def forward(self, tokens: Sequence[int], cache: list[Any]) -> mx.array:
        """Logits ``[length, vocab]`` of all ``tokens`` of the decoder; the cache is updated."""
        ids = mx.array(list(tokens), mx.int32)[None]
        model = self._loaded.language_model
        output = model(decoder_input_ids=ids, encoder_outputs=self._encoder_outputs, cache=cache)
        logits: mx.array = output.logits
        return logits[0]


def text_model(loaded: LoadedModel) -> LoadedModel | ModelWithMedium:
    """A model that takes only text: the model itself if it needs no medium."""
    return ModelWithMedium(loaded) if loaded.family.facts.required else loaded
