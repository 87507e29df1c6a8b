"""Text prompts for models that need a medium in every request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from conformance.core.family import Family
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm.inputs import compose, embed, inputs_of
from conformance.plugins.mlx_vlm.model import LoadedModel


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
