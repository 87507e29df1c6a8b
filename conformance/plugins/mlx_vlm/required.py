"""Models of which every request holds a medium: what stands for a prompt of text alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from conformance.core.family import Family
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm.inputs import compose, embed, inputs_of
from conformance.plugins.mlx_vlm.model import LoadedModel


def plain(loaded: LoadedModel, tokens: tuple[int, ...], max_tokens: int) -> Request:
    """A request of these tokens, after the medium that every request of the family must hold."""
    kind = loaded.family.facts.required
    if not kind:
        return Request("plain", tokens, max_tokens)
    medium = Media(kind, loaded.family.facts.sizes[kind][0])
    prompt, media = compose(loaded, [medium, tokens])
    return Request("plain", prompt, max_tokens, media=media)


class Shown:
    """A model that is shown one medium before all that it hears; else as ``LoadedModel``."""

    def __init__(self, loaded: LoadedModel) -> None:
        low, _ = loaded.family.tokens
        made = inputs_of(loaded, plain(loaded, (low, low + 1), 1))
        output = loaded.language_model(made.input_ids, **embed(loaded.fresh(), made))
        self._loaded = loaded
        self._states = output.encoder_outputs

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
        """Logits ``[length, vocab]`` of all ``tokens`` of the decoder; the cache goes on."""
        ids = mx.array(list(tokens), mx.int32)[None]
        model = self._loaded.language_model
        output = model(decoder_input_ids=ids, encoder_outputs=self._states, cache=cache)
        logits: mx.array = output.logits
        return logits[0]


def hearer(loaded: LoadedModel) -> LoadedModel | Shown:
    """What takes text in: the model itself, if it can without a medium."""
    return Shown(loaded) if loaded.family.facts.required else loaded
