"""A loaded vision-language model that can be reset to its state after loading.

Models of mlx-vlm keep state of the last prompt in attributes (``_rope_deltas``, ``_position_ids``,
masks made once), or in cached functions of their package (hy_v4's compiled selection). Such state
must not reach the next run, so each run starts from ``fresh``.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_vlm.models.cache import make_prompt_cache

from conformance.backend.modules import Attributes
from conformance.core.family import Family


@dataclass(frozen=True)
class LoadedModel:
    """A model with its family's weights, in evaluation mode, and its processor, if it has one.

    ``composed`` holds the prompts made from text and media, ``inputs`` the processor's output for
    each, and ``drafters`` the family's loaded drafters, by kind.
    """

    model: Any
    processor: Any
    family: Family
    dtype: str
    seed: int
    inputs: dict[Any, Any] = field(default_factory=dict)
    composed: dict[Any, Any] = field(default_factory=dict)
    drafters: dict[str, Any] = field(default_factory=dict)
    _loaded: Attributes = field(init=False)
    _cached_functions: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        decoder = getattr(self.model, "language_model", self.model)  # a drafter has none
        self._cached_functions.extend(_cached_functions_of(type(decoder).__module__))
        object.__setattr__(self, "_loaded", Attributes(self.model))

    @property
    def language_model(self) -> Any:
        """The part that decodes, which the library's server gives to its batch generator."""
        return self.model.language_model

    @property
    def takes_pieces(self) -> bool:
        """Whether ``generate_step`` can prefill in pieces: it passes their ids as ``inputs``."""
        names = ("inputs", "inputs_embeds", "cache", "n_to_process", "logits_to_keep")
        try:
            inspect.signature(type(self.language_model).__call__).bind(self, **dict.fromkeys(names))
        except TypeError:
            return False
        return True

    def cache(self) -> list[Any]:
        """An empty cache for one request, after a reset of the model."""
        self.fresh()
        made: list[Any] = make_prompt_cache(self.language_model)
        return made

    def forward(self, tokens: Sequence[int], cache: list[Any]) -> mx.array:
        """Logits ``[length, vocab]`` of text ``tokens``; the cache is updated."""
        ids = mx.array(list(tokens), mx.int32)[None]
        logits: mx.array = self.language_model(ids, cache=cache).logits
        return logits[0]

    def likeliest(self) -> Callable[[Sequence[Sequence[int]]], list[int]]:
        """A function that gives the likeliest token after each text; it does not touch this model.

        Texts are filled up at their end, which no model sees from a token before it.
        """
        model = copy.deepcopy(self.language_model)

        def after(texts: Sequence[Sequence[int]]) -> list[int]:
            longest = max(map(len, texts))
            ids = mx.array([[*text, *[0] * (longest - len(text))] for text in texts], mx.int32)
            logits: mx.array = model(ids, cache=make_prompt_cache(model)).logits
            last = mx.array([len(text) - 1 for text in texts])
            best: Any = mx.argmax(logits[mx.arange(len(texts)), last], axis=-1).tolist()
            return list(best)

        return after

    def fresh(self) -> LoadedModel:
        """Reset every attribute of every module to its value after loading.

        Cached functions of the model's package are cleared too.
        """
        for function in self._cached_functions:
            function.cache_clear()
        self._loaded.restore()
        return self

    def changed(self) -> tuple[str, ...]:
        """The names of attributes that differ from their values after loading."""
        return self._loaded.changed()


def _cached_functions_of(module: str) -> list[Any]:
    """The functions of a module's package that have a cache (``lru_cache``)."""
    package = module.rpartition(".")[0] + "."
    inside = [found for name, found in list(sys.modules.items()) if name.startswith(package)]
    values = [value for found in inside for value in vars(found).values()]
    return [v for v in values if callable(getattr(type(v), "cache_clear", None))]
