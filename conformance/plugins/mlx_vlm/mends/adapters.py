"""The defect of phi4mm: the adapters of one request are merged into the weights of all."""

from __future__ import annotations

import functools
import importlib
from typing import Any, TypeAlias

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend

_ar: Any = importlib.import_module("mlx_vlm.generate.ar")
_nn: Any = importlib.import_module("mlx.nn")

# Whether a prompt has images, and whether it has sounds.
Kinds: TypeAlias = tuple[bool, bool]
_TEXT = None, (False, False)


@mend("phi4mm-adapters-of-last-request")
def adapters_are_chosen_row_by_row(hits: Hits) -> Patch:
    """Each row is decoded with the adapters for its own media, and a text with none."""
    model = importlib.import_module("mlx_vlm.models.phi4mm.phi4mm").Model
    weights: dict[int, dict[Kinds, mx.array]] = {}
    embedded: dict[int, tuple[mx.array, Kinds]] = {}
    adapters: dict[int, Kinds] = {}  # of each request, by its uid
    rows: list[Kinds] = []

    def merged(*_: Any, **__: Any) -> None:
        hits.hit()

    def embed(right: Right, self: Any, ids: Any, pixels: Any = None, **kw: Any) -> Any:
        sound = kw.get("input_audio_embeds")
        kind = (pixels is not None, sound is not None and sound.size > 0)
        for key, base in self._base_weights.items():
            linear = functools.reduce(_part, key.split(".")[:-1], self)
            weights.setdefault(id(linear), _variants(self, key, base))
        made = right(self, ids, pixels, **kw)
        embedded[id(made.inputs_embeds)] = made.inputs_embeds, kind
        return made

    def note(uids: list[int], _: Any, *__: Any, prompt_kwargs: Any = None, **___: Any) -> Any:
        for uid, given in zip(uids, prompt_kwargs or (), strict=True):
            adapters[uid] = embedded.pop(id(given["inputs_embeds"]), _TEXT)[1]
        return uids

    def step(right: Right, self: Any, *args: Any, **kw: Any) -> Any:
        rows[:] = [adapters.get(uid, _TEXT[1]) for uid in self.uids]
        return right(self, *args, **kw)

    def apply(right: Right, self: Any, x: mx.array) -> mx.array:
        own = weights.get(id(self))
        if own is None or len(rows) != len(x):
            found: mx.array = right(self, x)
            return found
        results = {kind: x @ own[kind].T for kind in dict.fromkeys(rows)}
        return mx.concatenate([results[kind][n : n + 1] for n, kind in enumerate(rows)])

    return together(
        replace(model, "set_modality", merged),
        wrap(model, "get_input_embeddings", embed),
        after(_ar.BatchGenerator, "insert", note),
        wrap(_ar.PromptProcessingBatch, "prompt_step", step),
        wrap(_ar.PromptProcessingBatch, "generate", step),
        wrap(_ar.GenerationBatch, "_step", step),
        wrap(_nn.Linear, "__call__", apply),
    )


def _part(module: Any, name: str) -> Any:
    return module[int(name)] if name.isdigit() else getattr(module, name)


def _variants(model: Any, key: str, base: mx.array) -> dict[Kinds, mx.array]:
    """The weight with the adapters for each kind of prompt; the library merges them so too."""
    added = []
    for kind in ("vision", "speech"):
        a, b = (getattr(model, f"_{kind}_lora_{side}").get(key) for side in "ab")
        scale = getattr(model, f"_{kind}_lora_scale")
        added.append(scale * (b @ a) if a is not None else mx.zeros_like(base))
    return {
        (False, False): base,
        (True, False): base + added[0],
        (False, True): base + added[1],
        (True, True): base + added[0] + added[1],
    }
