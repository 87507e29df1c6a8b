"""Loads real checkpoints with mlx-vlm's own loader; never writes to their folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_vlm import utils
from transformers import AutoTokenizer

from conformance.backend.casting import cast
from conformance.backend.checkpoint import first_not_finite, library_errors, parameters
from conformance.core.errors import Unsupported
from conformance.core.family import Checkpoint, Facts, Family
from conformance.tools.checkpoints.folder import look


def check(folder: Path, *, trusted: bool = False) -> None:
    """See ``Library.check``: the weights are mapped, but not read.

    Source: ``mlx_vlm.utils._load_safetensors``, which opens some files for writing.
    """
    for tensor in look(folder).tensors.values():
        if tensor.dtype in getattr(utils, "SAFETENSORS_DTYPE_FALLBACKS", ()):
            raise Unsupported(
                f"{tensor.file} holds {tensor.dtype}, and mlx-vlm rewrites the header of such a "
                "file while it loads it; convert the checkpoint first"
            )
    with library_errors(_named(folder), "loading"):
        _lazy(folder, trusted=trusted)


def not_finite(folder: Path, *, trusted: bool = False) -> str | None:
    """See ``Library.not_finite``: each parameter is read, then released."""
    with library_errors(_named(folder), "loading"):
        return first_not_finite(parameters(_lazy(folder, trusted=trusted)))


def tokenize(folder: Path, texts: Sequence[str], *, trusted: bool) -> tuple[tuple[int, ...], ...]:
    """See ``Library.tokenize``."""
    with library_errors(_named(folder), "loading the tokenizer"):
        made: Any = AutoTokenizer
        tokenizer = made.from_pretrained(folder, trust_remote_code=trusted)
        return tuple(tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts)


def load(family: Family, checkpoint: Checkpoint, *, dtype: str) -> tuple[Any, Any]:
    """The checkpoint's model in evaluation mode, cast to ``dtype``, and its processor.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed to load it.
    """
    with library_errors(family, "loading"):
        # Without this argument, some of the library's processors run the folder's code.
        model, processor = utils.load(
            checkpoint.folder, lazy=True, strict=True, trust_remote_code=checkpoint.trusted
        )
        cast(model, dtype)
        mx.eval(model.parameters())
    model.eval()
    return model, processor


def _lazy(folder: Path, *, trusted: bool) -> Any:
    return utils.load_model(folder, lazy=True, strict=True, trust_remote_code=trusted)


def _named(folder: Path) -> Family:
    return Family(folder.name, Facts(), {})
