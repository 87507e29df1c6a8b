"""The transformers side: a tiny torch model of a family, its checkpoint, and what it gives."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.auto import configuration_auto, modeling_auto

from conformance.core.errors import ModelError
from conformance.core.family import Recipe
from conformance.core.weights import draw, make_weights
from conformance.tools.golden.transformers_check.known import Change

_SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")
# Parameters of a tiny model at most: a config that leaves a size out gets a real model's.
LARGEST = 20_000_000
# Towers that text does not pass: their parameters are never heard.
TOWERS = ("*vision*", "*visual*", "*multi_modal*", "*mm_projector*", "*patch_merge*", "*audio*")
# Relative noise that is put on a parameter to see whether it is heard.
NUDGE = 0.01


@dataclass(frozen=True)
class Answer:
    """What the torch model gives for one prompt.

    Attributes:
        tokens: greedy, from growing prefixes without a cache.
        whole: logits ``[len(prompt) + len(tokens) - 1, vocab]`` of one pass over all.
        exact: the same in float64, ``None`` for a model that can't be run so.
        growing: logits ``[len(tokens), vocab]``, each from a pass over its prefix.
        cached: the same from ``generate`` with its cache, ``None`` if it failed.
        words: what it said then.
    """

    tokens: tuple[int, ...]
    whole: np.ndarray
    exact: np.ndarray | None
    growing: np.ndarray
    cached: np.ndarray | None
    words: str = ""


def version() -> str:
    """The versions of transformers and torch."""
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


def quiet() -> None:
    """Silence what transformers tells, which is no concern here."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def auto_class(model_type: str, name: str = "") -> Any:
    """The ``Auto`` class that makes this model type, or ``None`` if transformers has none.

    Args:
        name: of the class that is asked for; by default a plain language model before others.
    """
    if model_type not in configuration_auto.CONFIG_MAPPING_NAMES:
        return None
    if name:
        return getattr(transformers, name)
    if model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return transformers.AutoModelForCausalLM
    if model_type in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return transformers.AutoModelForImageTextToText
    return None


def build(config: Mapping[str, Any], auto: str = "") -> Any:
    """A model in float32 with eager attention and eager experts, its weights not yet drawn.

    Raises:
        ModelError: it would be a real model's size.
    """
    torch.set_num_threads(1)
    kind = configuration_auto.CONFIG_MAPPING[config["model_type"]]
    plain = {**dict.fromkeys(_SPECIAL), **copy.deepcopy(dict(config)), "dtype": "float32"}
    made = kind.from_dict(plain)
    made._attn_implementation = "eager"
    made._experts_implementation = "eager"
    chosen = auto_class(config["model_type"], auto)
    make = functools.partial(chosen.from_config, made, attn_implementation="eager")
    with torch.device("meta"):
        count = sum(p.numel() for p in make().parameters())
    if count > LARGEST:
        raise ModelError(f"{count / 1e6:.0f} million parameters: the config leaves sizes out")
    return make(dtype=torch.float32).eval()


def parameters(model: Any) -> dict[str, torch.Tensor]:
    """All that a checkpoint holds and that can be drawn, each once."""
    held = set(model.state_dict())
    found = dict(model.named_parameters())
    found.update((name, b) for name, b in model.named_buffers() if name in held)
    return {name: value for name, value in found.items() if value.is_floating_point()}


def fill(model: Any, recipe: Recipe, *, seed: int) -> None:
    """Draw all parameters by the family's recipe; rules for other names than torch's are left."""
    found = parameters(model)
    rules = tuple(r for r in recipe.rules if any(fnmatchcase(path, r.match) for path in found))
    recipe = msgspec.structs.replace(recipe, rules=rules)
    shapes = {path: tuple(value.shape) for path, value in found.items()}
    drawn = make_weights(shapes, recipe, seed=seed)
    with torch.no_grad():
        for path, value in found.items():
            value.copy_(torch.from_numpy(np.asarray(drawn[path])))


def set_weights(model: Any, values: Mapping[str, float]) -> None:
    """Set all parameters that a glob matches to one number."""
    found = parameters(model)
    with torch.no_grad():
        for pattern, number in values.items():
            for path in _matching(found, pattern):
                found[path].fill_(number)


def set_attributes(model: Any, values: Mapping[str, float]) -> None:
    """Set attributes of modules by the glob of their path, ``*.norm.variance_epsilon``."""
    for pattern, number in values.items():
        modules, _, attribute = pattern.rpartition(".")
        named = {n: m for n, m in model.named_modules() if hasattr(m, attribute)}
        for name in _matching(named, modules):
            setattr(named[name], attribute, number)


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that a glob matches: all of what is known must still be there."""
    if not (found := [name for name in names if fnmatchcase(name, pattern)]):
        raise ModelError(f"{pattern!r} matches nothing in the torch model")
    return found


def save(model: Any, folder: Path, changes: Sequence[Change]) -> None:
    """An ordinary checkpoint, as its makers publish it but for the changes."""
    model.generation_config = transformers.GenerationConfig()
    plain = any(change.plain for change in changes)
    model.save_pretrained(folder, save_original_format=not plain)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for change in changes:
        for pattern, other in change.rename.items():
            tensors = {re.sub(pattern, other, name): value for name, value in tensors.items()}
        for pattern in change.transpose:
            for name in _matching(tensors, pattern):
                tensors[name] = tensors[name].transpose(-1, -2)
        for pattern in change.leave:
            for name in _matching(tensors, pattern):
                del tensors[name]
    save_file({name: t.contiguous() for name, t in tensors.items()}, path, {"format": "pt"})


def answer(model: Any, prompt: Sequence[int], steps: int) -> Answer:
    """The greedy answer to a prompt, in every way that transformers has to give it."""
    tokens: list[int] = []
    rows = []
    for _ in range(steps):
        rows.append(logits(model, [*prompt, *tokens])[-1])
        tokens.append(int(rows[-1].argmax()))
    every = [*prompt, *tokens[:-1]]
    cached, words = _generated(model, prompt, steps)
    return Answer(
        tuple(tokens), logits(model, every), _exact(model, every), np.stack(rows), cached, words
    )


def logits(model: Any, tokens: Sequence[int]) -> np.ndarray:
    """Logits of one pass without a cache, ``[len(tokens), vocab]``."""
    with torch.no_grad():
        given = model(input_ids=torch.tensor([list(tokens)]), use_cache=False)
    found: np.ndarray = given.logits[0].numpy()
    return found


def _exact(model: Any, tokens: Sequence[int]) -> np.ndarray | None:
    try:
        return logits(copy.deepcopy(model).double(), tokens)
    except RuntimeError:  # some mix dtypes
        return None


def _generated(model: Any, prompt: Sequence[int], steps: int) -> tuple[np.ndarray | None, str]:
    settings = transformers.GenerationConfig(
        max_new_tokens=steps,
        do_sample=False,
        use_cache=True,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    ids = torch.tensor([list(prompt)])
    try:
        given = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    except Exception as error:  # noqa: BLE001 - its words, whatever they are
        return None, f"{type(error).__name__}: {error}"
    return torch.cat(given.logits).float().numpy(), ""


def unheard(
    model: Any, tokens: Sequence[int], moved: Callable[[np.ndarray], bool]
) -> tuple[int, tuple[str, ...]]:
    """How many parameters there are, and those that move nothing if 1 % of noise is put on them.

    Args:
        moved: says of logits of all ``tokens`` whether they are beyond noise.
    """
    quiet_ones = []
    found = {
        path: value
        for path, value in parameters(model).items()
        if not any(fnmatchcase(path, tower) for tower in TOWERS)
    }
    for path, value in found.items():
        before = value.detach().clone()
        z = torch.from_numpy(np.asarray(draw(path, tuple(value.shape), seed=1)))
        with torch.no_grad():
            value.mul_((1 + NUDGE * z).to(value.dtype))
        if not moved(logits(model, tokens)):
            quiet_ones.append(path)
        with torch.no_grad():
            value.copy_(before)
    return len(found), tuple(quiet_ones)
