"""A family's model, made the way a user's is: files on disk, read by the library's own loader.

So a model's ``sanitize``, its ``from_dict`` and the loader's strictness take part. After loading,
every parameter is compared with what was drawn: a ``sanitize`` that changes weights which are
already in the library's format would otherwise test another model than we think.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm import utils

from conformance.errors import ConformanceError, ModelError, Unsupported
from conformance.family import Family
from conformance.runner import says_unsupported
from conformance.weights import make_packed, make_weights

_PACKED = {mx.uint8: np.uint8, mx.uint16: np.uint16, mx.uint32: np.uint32}
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class LoadedModel:
    """A model with its family's weights, in evaluation mode."""

    model: Module
    family: Family
    dtype: str
    seed: int


def load(family: Family, *, dtype: str = "float32", seed: int = 0) -> LoadedModel:
    """The family's model, loaded from a temporary checkpoint by ``mlx_lm.utils.load_model``.

    Args:
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        seed: shifts the weights' seed further than the family's own seed does.

    Raises:
        Unsupported: the installed library has no such model, or says that it can't build it.
        ModelError: the library failed, or what it loaded is not what was written.
    """
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        written = _write(family, folder, dtype=dtype, seed=seed)
        options: dict[str, Any] = {"trust_remote_code": True} if family.facts.model_file else {}
        with library_errors(family, "loading"):
            model, _ = utils.load_model(folder, strict=True, **options)
            mx.eval(model.parameters())
        _verify(family, model, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    model.eval()
    return LoadedModel(model=model, family=family, dtype=dtype, seed=seed)


def write_checkpoint(family: Family, folder: Path, *, dtype: str, seed: int) -> None:
    """Write ``config.json`` and ``model.safetensors``, in the library's own format, to a folder.

    Raises:
        Unsupported: the installed library has no such model, or says that it can't build it.
        ModelError: the library failed to build the model.
    """
    _write(family, folder, dtype=dtype, seed=seed)


def _write(family: Family, folder: Path, *, dtype: str, seed: int) -> dict[str, mx.array]:
    if dtype not in _DTYPES:
        raise ModelError(f"{family.name}: dtype {dtype!r} is none of {', '.join(_DTYPES)}")
    config = dict(family.config)
    if family.facts.model_file:
        source = Path(family.path).parent / family.facts.model_file
        shutil.copy(source, folder / source.name)
        config["model_file"] = source.name
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    with library_errors(family, "building"):
        skeleton = _skeleton(config, folder)
    weights = _draw(family, skeleton, dtype=getattr(mx, dtype), seed=family.facts.seed + seed)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return weights


def _skeleton(config: dict[str, Any], folder: Path) -> Module:
    """The model, its parameters lazy and never evaluated: only their shapes and dtypes count."""
    if model_file := config.get("model_file"):
        spec = importlib.util.spec_from_file_location("custom_model", folder / model_file)
        if spec is None or spec.loader is None:
            raise ValueError(f"{model_file} can't be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model_class, args_class = module.Model, module.ModelArgs
    else:
        model_class, args_class = utils._get_classes(config=dict(config))
    # A deep copy: some ``from_dict`` write into the configuration that they are given.
    model: Module = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    return model


def _draw(family: Family, skeleton: Module, *, dtype: mx.Dtype, seed: int) -> dict[str, mx.array]:
    parameters = _parameters(skeleton)
    # As mlx_lm.convert does: all floating parameters, but those that the model keeps back.
    castable: Callable[[str], bool] = getattr(skeleton, "cast_predicate", lambda _: True)
    floating = {
        path: tuple(value.shape)
        for path, value in parameters.items()
        if mx.issubdtype(value.dtype, mx.floating)
    }
    weights: dict[str, mx.array] = {}
    for path, drawn in make_weights(floating, family.facts.weights, seed=seed).items():
        weights[path] = mx.array(drawn).astype(dtype if castable(path) else mx.float32)
    for path, value in parameters.items():
        if value.dtype in _PACKED:
            shape = tuple(value.shape)
            weights[path] = mx.array(make_packed(path, shape, _PACKED[value.dtype], seed=seed))
        elif path not in weights:
            weights[path] = value
    return weights


def _parameters(model: Module) -> dict[str, mx.array]:
    parameters: Any = model
    return dict(tree_flatten(parameters.parameters()))


def _verify(family: Family, model: Module, written: dict[str, mx.array]) -> None:
    """Every loaded parameter equals what was written, or what a projection makes of it.

    A projection (unit rows, say) changes weights once and leaves them alone when it runs again. Any
    other ``sanitize`` that changes weights in the library's own format spoils converted models.
    """
    loaded = _parameters(model)
    if lost := sorted(set(written) ^ set(loaded)):
        raise ModelError(f"{family.name}: written and loaded parameters differ: {lost[0]}")
    changed = [path for path, value in written.items() if not _same(loaded[path], value)]
    if not changed:
        return
    again = model.sanitize(dict(loaded)) if hasattr(model, "sanitize") else loaded
    unstable = [path for path in changed if not _same(again[path], loaded[path], ulps=8)]
    if unstable:
        raise ModelError(
            f"{family.name}: loading changed {len(changed)} of {len(written)} parameters that are "
            f"already in the library's format, the first is {changed[0]}"
        )


def _same(one: mx.array, other: mx.array, *, ulps: int = 0) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not ulps:
        return bool(mx.array_equal(one, other).item())
    return bool(mx.allclose(one, other, rtol=ulps * mx.finfo(one.dtype).eps, atol=0.0).item())


@contextlib.contextmanager
def library_errors(family: Family, doing: str) -> Iterator[None]:
    """Turn whatever the library raises into our errors, with the library's own words.

    Importing a model may even call ``sys.exit``, after printing why: the print is its words.

    Raises:
        Unsupported: the library (or the array library below it) says that it cannot do this here.
        ModelError: anything else went wrong.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except ConformanceError:
        raise
    except SystemExit as error:
        words = printed.getvalue().strip() or f"exit status {error.code}"
        raise Unsupported(f"{family.name}: {words}") from error
    except Exception as error:
        words = str(error)
        if isinstance(error, ImportError) or says_unsupported(error):
            raise Unsupported(f"{family.name}: {words}") from error
        name = type(error).__name__
        raise ModelError(f"{family.name}: {doing} failed: {name}: {words}") from error
