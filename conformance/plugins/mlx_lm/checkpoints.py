"""Loads real checkpoints with mlx-lm's own loader; never writes to their folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import utils

from conformance.backend.casting import cast
from conformance.backend.checkpoint import first_not_finite, library_errors, parameters
from conformance.core.family import Checkpoint, Facts, Family


def check(folder: Path, *, trusted: bool = False) -> None:
    """See ``Library.check``: the weights are mapped, but not read."""
    with library_errors(_named(folder), "loading"):
        _lazy(folder, trusted=trusted)


def not_finite(folder: Path, *, trusted: bool = False) -> str | None:
    """See ``Library.not_finite``: each parameter is read, then released."""
    with library_errors(_named(folder), "loading"):
        return first_not_finite(parameters(_lazy(folder, trusted=trusted)))


def tokenize(folder: Path, texts: Sequence[str], *, trusted: bool) -> tuple[tuple[int, ...], ...]:
    """See ``Library.tokenize``."""
    with library_errors(_named(folder), "loading the tokenizer"):
        # Without this argument, transformers asks on the terminal whether to run the folder's code.
        tokenizer = utils.load_tokenizer(folder, {"trust_remote_code": trusted})
        return tuple(tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts)


def load(family: Family, checkpoint: Checkpoint, *, dtype: str) -> Any:
    """The checkpoint's model in evaluation mode, cast to ``dtype``.

    Raises:
        Unsupported: the installed library has no such model, or says that it cannot build it.
        ModelError: the library failed to load it.
    """
    folder, trusted = Path(checkpoint.folder), checkpoint.trusted
    with library_errors(family, "loading"):
        model = _lazy(folder, trusted=trusted)
        cast(model, dtype)
        mx.eval(model.parameters())
    model.eval()
    return model


def _lazy(folder: Path, *, trusted: bool) -> Any:
    model, _ = utils.load_model(folder, lazy=True, strict=True, trust_remote_code=trusted)
    return model


def _named(folder: Path) -> Family:
    return Family(folder.name, Facts(), {})
