"""A loaded vision-language model, and its state as it was when it was loaded.

Models of mlx-vlm keep what they know of the last prompt on themselves (``_rope_deltas``,
``_position_ids``, masks made once), or in functions that their package makes once (hy_v4's compiled
selection). A run must neither see what an earlier one left there nor leave anything: each starts
from ``fresh``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_vlm.models.cache import make_prompt_cache

from conformance.family import Family


@dataclass(frozen=True)
class LoadedModel:
    """A model with its family's weights, in evaluation mode, and its processor, if it has one.

    ``composed`` holds the prompts that were made of text and media, ``inputs`` what the processor
    made of each, ``drafters`` the family's drafters as far as they were loaded, by their kind.
    """

    model: Any
    processor: Any
    family: Family
    dtype: str
    seed: int
    inputs: dict[Any, Any] = field(default_factory=dict)
    composed: dict[Any, Any] = field(default_factory=dict)
    drafters: dict[str, Any] = field(default_factory=dict)
    _state: list[tuple[Module, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    _makers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        decoder = getattr(self.model, "language_model", self.model)  # a drafter has none
        self._makers.extend(_remembering(type(decoder).__module__))
        for _, module in self.model.named_modules():
            self._state.append((module, _copied(module), _copied(vars(module))))

    @property
    def language_model(self) -> Any:
        """The part that decodes; what the library's server gives to its batch generator."""
        return self.model.language_model

    @property
    def takes_pieces(self) -> bool:
        """Whether ``generate_step`` can prefill the model in pieces, which it names ``inputs``."""
        names = ("inputs", "inputs_embeds", "cache", "n_to_process", "logits_to_keep")
        try:
            inspect.signature(type(self.language_model).__call__).bind(self, **dict.fromkeys(names))
        except TypeError:
            return False
        return True

    def cache(self) -> list[Any]:
        """An empty cache for one request, of a model that remembers none."""
        self.fresh()
        made: list[Any] = make_prompt_cache(self.language_model)
        return made

    def forward(self, tokens: Sequence[int], cache: list[Any]) -> mx.array:
        """Logits ``[length, vocab]`` of text ``tokens``; the cache goes on."""
        ids = mx.array(list(tokens), mx.int32)[None]
        logits: mx.array = self.language_model(ids, cache=cache).logits
        return logits[0]

    def fresh(self) -> LoadedModel:
        """Put every attribute of every module back to what it was after loading.

        What functions of the model's package remember of earlier calls, they forget.
        """
        for maker in self._makers:
            maker.cache_clear()
        for module, items, attributes in self._state:
            _restore(module, items)
            _restore(vars(module), attributes)
        return self

    def changed(self) -> tuple[str, ...]:
        """The names of attributes that differ from what they were after loading."""
        return tuple(
            sorted(
                {
                    name
                    for module, items, attributes in self._state
                    for now, was in ((module, items), (vars(module), attributes))
                    for name in now.keys() | was.keys()
                    if not name.startswith("__") and now.get(name) is not was.get(name)
                    if not isinstance(was.get(name), list | dict)
                }
            )
        )


def _remembering(module: str) -> list[Any]:
    """The functions of a module's package that remember what they returned (``lru_cache``)."""
    package = module.rpartition(".")[0] + "."
    inside = [found for name, found in list(sys.modules.items()) if name.startswith(package)]
    values = [value for found in inside for value in vars(found).values()]
    return [v for v in values if callable(getattr(type(v), "cache_clear", None))]


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """A copy that later changes of lists and dictionaries in ``state`` do not reach."""
    return {k: type(v)(v) if type(v) in (list, dict) else v for k, v in state.items()}


def _restore(state: dict[str, Any], was: dict[str, Any]) -> None:
    for name in state.keys() - was.keys():
        del state[name]
    dict.update(state, _copied(was))  # nn.Module.update takes parameters only
