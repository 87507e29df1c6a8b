"""The transformers side: a tiny torch model of a family, its checkpoint, and its output."""

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
from conformance.power.transformers_check.known_differences import Change

_SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")
# The most parameters of a tiny model: sizes that a config leaves out default to a real model's.
LARGEST = 20_000_000
# Towers that text does not use: their parameters have no effect.
TOWERS = ("*vision*", "*visual*", "*multi_modal*", "*mm_projector*", "*patch_merge*", "*audio*")
# Relative noise that is added to a parameter to see whether it has an effect.
NUDGE = 0.01


@dataclass(frozen=True)
class Answer:
    """The output of the torch model for one prompt.

    Attributes:
        tokens: greedy, from growing prefixes without a cache.
        whole: logits ``[len(prompt) + len(tokens) - 1, vocab]`` of one pass over all.
        exact: the same in float64, ``None`` for a model that cannot run in float64.
        growing: logits ``[len(tokens), vocab]``, each from a pass over its prefix.
        cached: the same from ``generate`` with its cache, ``None`` if it failed.
        error: the error of ``generate``.
    """

    tokens: tuple[int, ...]
    whole: np.ndarray
    exact: np.ndarray | None
    growing: np.ndarray
    cached: np.ndarray | None
    error: str = ""


def version() -> str:
    """The versions of transformers and torch."""
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


def silence_logging() -> None:
    """Switch off the log and the progress bars of transformers."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def auto_class(model_type: str, name: str = "") -> Any:
    """The ``Auto`` class that makes this model type, or ``None`` if transformers has none.

    Args:
        name: the class to use; by default a plain language model before others.
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
    """A model in float32 with eager attention and eager experts, before weights are drawn.

    Raises:
        ModelError: the model would have the size of a real one.
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
    """All floating tensors of a checkpoint, each once."""
    held = set(model.state_dict())
    found = dict(model.named_parameters())
    found.update((name, b) for name, b in model.named_buffers() if name in held)
    return {name: value for name, value in found.items() if value.is_floating_point()}


def fill(model: Any, recipe: Recipe, *, seed: int) -> None:
    """Draw all parameters by the family's recipe, except rules for names that torch lacks."""
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
    """The names that a glob matches; at least one."""
    if not (found := [name for name in names if fnmatchcase(name, pattern)]):
        raise ModelError(f"{pattern!r} matches nothing in the torch model")
    return found


def save(model: Any, folder: Path, changes: Sequence[Change]) -> None:
    """Save an ordinary checkpoint, in the published format except for the changes."""
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
    """The greedy answer to a prompt, computed in each way that transformers offers."""
    tokens: list[int] = []
    rows = []
    for _ in range(steps):
        rows.append(logits(model, [*prompt, *tokens])[-1])
        tokens.append(int(rows[-1].argmax()))
    every = [*prompt, *tokens[:-1]]
    cached, error = _generated(model, prompt, steps)
    return Answer(
        tuple(tokens), logits(model, every), _exact(model, every), np.stack(rows), cached, error
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
    except Exception as error:  # noqa: BLE001 - whatever it raises is reported
        return None, f"{type(error).__name__}: {error}"
    return torch.cat(given.logits).float().numpy(), ""


def ineffective(
    model: Any, tokens: Sequence[int], moved: Callable[[np.ndarray], bool]
) -> tuple[int, tuple[str, ...]]:
    """The number of parameters, and the names of those without effect when 1 % of noise is added.

    Args:
        moved: whether logits of all ``tokens`` differ by more than noise.
    """
    without_effect = []
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
            without_effect.append(path)
        with torch.no_grad():
            value.copy_(before)
    return len(found), tuple(without_effect)
