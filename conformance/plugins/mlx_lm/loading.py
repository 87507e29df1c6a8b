"""Loads a family's model as a user would: from files on disk, with the library's own loader.

This also tests the model's ``sanitize`` and ``from_dict`` and the loader's strictness. After
loading, every parameter is compared with the written one: otherwise a ``sanitize`` that changes
weights that are already in the library's format would yield a different model than the family's.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm import utils
from mlx_lm.models.cache import make_prompt_cache

from conformance.backend.checkpoint import cast, draw, library_errors, verify
from conformance.backend.half_products import multiply_experts_in_half_precision
from conformance.backend.outline import outline
from conformance.core.family import Family
from conformance.core.library import Outline


@dataclass(frozen=True)
class LoadedModel:
    """A model with its family's weights, in evaluation mode."""

    model: Any
    family: Family
    dtype: str
    seed: int

    def cache(self) -> list[Any]:
        """An empty cache for one request."""
        made: list[Any] = make_prompt_cache(self.model)
        return made

    def forward(self, tokens: Sequence[int], cache: list[Any]) -> mx.array:
        """Logits ``[length, vocab]`` of all ``tokens``; the cache is updated."""
        logits: mx.array = self.model(mx.array(list(tokens))[None], cache=cache)
        return logits[0]


def load(family: Family, *, dtype: str = "float32", seed: int = 0) -> LoadedModel:
    """The family's model, loaded from a temporary checkpoint by ``mlx_lm.utils.load_model``.

    Args:
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        seed: added to the family's own seed.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed, or the loaded weights differ from the written ones.
    """
    multiply_experts_in_half_precision()
    if family.checkpoint is not None:
        with library_errors(family, "loading"):
            model = lazy(Path(family.checkpoint.folder), trusted=family.checkpoint.trusted)
            cast(model, dtype)
            mx.eval(model.parameters())
    else:
        with TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            written = write_checkpoint(family, folder, dtype=dtype, seed=seed)
            options: dict[str, Any] = {"trust_remote_code": True} if family.facts.model_file else {}
            with library_errors(family, "loading"):
                model, _ = utils.load_model(folder, strict=True, **options)
                mx.eval(model.parameters())
            verify(family, model, written)
    model.eval()
    return LoadedModel(model=model, family=family, dtype=dtype, seed=seed)


def lazy(folder: Path, *, trusted: bool) -> Any:
    """See ``InstalledLibrary.lazy``."""
    model, _ = utils.load_model(folder, lazy=True, strict=True, trust_remote_code=trusted)
    return model


def tokenizer(folder: Path, *, trusted: bool) -> Any:
    """See ``InstalledLibrary.tokenizer``."""
    # Without this argument, transformers asks on the terminal whether to run the folder's code.
    return utils.load_tokenizer(folder, {"trust_remote_code": trusted})


def outlined(family: Family) -> Outline:
    """See ``Library.outline``: the model of the config, with parameters that are never evaluated.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed to build the model.
    """
    config = dict(family.config)
    if family.facts.model_file:
        config["model_file"] = family.facts.model_file
    with library_errors(family, "building"):
        model = _skeleton(config, Path(family.path).parent)
        module = type(model).__module__.rpartition(".")[2]
        return outline(model, module=module, caches=make_prompt_cache(model))


def write_checkpoint(family: Family, folder: Path, *, dtype: str, seed: int) -> dict[str, mx.array]:
    """Write config and weights, in the library's own format, to a folder; returns the weights.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed to build the model.
    """
    config = dict(family.config)
    if family.facts.model_file:
        source = Path(family.path).parent / family.facts.model_file
        shutil.copy(source, folder / source.name)
        config["model_file"] = source.name
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    with library_errors(family, "building"):
        skeleton = _skeleton(config, folder)
    weights = draw(family, skeleton, dtype=dtype, seed=seed)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return weights


def _skeleton(config: dict[str, Any], folder: Path) -> Module:
    """The model with lazy parameters, which are never evaluated: only shapes and dtypes count."""
    if model_file := config.get("model_file"):
        spec = importlib.util.spec_from_file_location("custom_model", folder / model_file)
        if spec is None or spec.loader is None:
            raise ValueError(f"{model_file} can't be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model_class, args_class = module.Model, module.ModelArgs
    else:
        with found(str(config.get("model_type"))):
            model_class, args_class = utils._get_classes(config=dict(config))
    # A deep copy, because some ``from_dict`` methods write into their argument.
    model: Module = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    return model


# By the model's module.
_LOOKED_FOR = {"olmo": "hf_olmo"}


@contextlib.contextmanager
def found(model_type: str) -> Iterator[None]:
    """Import the model's module while an empty module replaces the package that it looks for.

    Outside of the block the package is missing as before; an installed package is left alone. A
    model that used anything of the empty module would fail.
    """
    package = _LOOKED_FOR.get(model_type)
    if package is None or importlib.util.find_spec(package) is not None:
        yield
        return
    sys.modules[package] = ModuleType(package)
    try:
        importlib.import_module(f"mlx_lm.models.{model_type}")
        yield
    finally:
        del sys.modules[package]
