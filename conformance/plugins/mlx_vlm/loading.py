"""Loads a family's model and processor as a user would: by ``mlx_vlm.load`` from a folder."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_vlm import utils
from mlx_vlm.models.cache import make_prompt_cache
from transformers import AutoTokenizer

from conformance.backend.checkpoint import cast, draw, library_errors, verify
from conformance.backend.half_products import multiply_experts_in_half_precision
from conformance.backend.outline import outline
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.library import Outline
from conformance.plugins.mlx_vlm import compat, legacy
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.processor_files import write_processor

_TOWERS = ["text", "vision", "perceiver", "projector", "audio"]


def load(family: Family, *, dtype: str = "float32", seed: int = 0) -> LoadedModel:
    """The family's model and processor, loaded from a temporary checkpoint.

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
            # Without this argument, some of the library's processors run the folder's code.
            model, processor = utils.load(
                family.checkpoint.folder,
                lazy=True,
                strict=True,
                trust_remote_code=family.checkpoint.trusted,
            )
            cast(model, dtype)
            mx.eval(model.parameters())
    else:
        with TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            written = write_checkpoint(family, folder, dtype=dtype, seed=seed)
            with library_errors(family, "loading"):
                model, processor = _loaded(family, folder)
                mx.eval(model.parameters())
            verify(family, model, written)
    model.eval()
    return LoadedModel(model, processor, family, dtype=dtype, seed=seed)


def lazy(folder: Path, *, trusted: bool) -> Any:
    """See ``InstalledLibrary.lazy``."""
    return utils.load_model(folder, lazy=True, strict=True, trust_remote_code=trusted)


def tokenizer(folder: Path, *, trusted: bool) -> Any:
    """See ``InstalledLibrary.tokenizer``."""
    made: Any = AutoTokenizer
    return made.from_pretrained(folder, trust_remote_code=trusted)


def _loaded(family: Family, folder: Path) -> tuple[Any, Any]:
    stand_in = family.facts.stand_in
    if stand_in is None or not stand_in.unloadable:
        try:
            made: tuple[Any, Any] = utils.load(str(folder), strict=True)
        except ValueError as error:
            missing = legacy.missing(error) if compat.embeds_together() else None
            if missing is None:
                raise
            raise Unsupported(f"its processor is not supported without {missing}") from error
        return made
    model = utils.load_model(folder, strict=True)
    # A folder without a config names no model, so only its tokenizer is loaded.
    tokenizer_folder = folder / "tokenizer"
    tokenizer_folder.mkdir()
    write_processor(family, tokenizer_folder)
    ends = getattr(model.config, "eos_token_id", None)
    return model, utils.load_processor(tokenizer_folder, True, eos_token_ids=ends)


def write_checkpoint(family: Family, folder: Path, *, dtype: str, seed: int) -> dict[str, mx.array]:
    """Write config, weights and the processor's files to a folder; returns the weights.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed to build the model.
    """
    config = dict(family.config)
    if family.facts.model_file:
        source = Path(family.path).parent / family.facts.model_file
        shutil.copyfile(source, folder / source.name)
        config["model_file"] = source.name
    config = compat.with_end_of_text(config)
    text = json.dumps(config, indent=2)
    (folder / "config.json").write_text(text, encoding="utf-8")
    with library_errors(family, "building"):
        skeleton = _skeleton(config, folder)
    weights = draw(family, skeleton, dtype=dtype, seed=seed)
    named = {path.removeprefix(family.facts.strip): value for path, value in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), named, metadata={"format": "mlx"})
    write_processor(family, folder)
    return weights


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
        model: Any = _skeleton(config, Path(family.path).parent)
        module = compat.model_package(dict(config), Path(family.path).parent).__name__
        caches = make_prompt_cache(model.language_model)
        return outline(model, module=module.rpartition(".")[2], caches=caches)


def _skeleton(config: dict[str, Any], folder: Path) -> Module:
    """The model as ``mlx_vlm.utils.load_model`` makes it; its parameters are never evaluated."""
    config = copy.deepcopy(config)
    package = compat.model_package(config, folder)
    config.setdefault("text_config", config.pop("llm_config", {}))
    config.setdefault("vision_config", {})
    config.setdefault("audio_config", {})
    made = package.ModelConfig.from_dict(config)
    made = utils.update_module_configs(made, package, config, _TOWERS)
    model: Module = package.Model(made)
    return model
