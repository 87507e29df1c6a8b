"""A family's checkpoint: weights drawn for a model's parameters, checked, hashed and cast.

The library's own loader reads the checkpoint, so its ``sanitize``, ``from_dict`` and strictness are
tested too; the loaded parameters are then compared with the drawn ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten, tree_map_with_path

from conformance.core.errors import ConformanceError, ModelError, Unsupported
from conformance.core.failures import says_unsupported
from conformance.core.family import Family
from conformance.core.missing_names import missing_name
from conformance.core.weights import make_packed, make_weights

DTYPES = ("float32", "float16", "bfloat16")
_PARTS = ("weight", "scales", "biases")  # of a quantized matrix
_OPTIONS = ("group_size", "bits", "mode")
_PACKED = {mx.uint8: np.uint8, mx.uint16: np.uint16, mx.uint32: np.uint32}


def draw(family: Family, skeleton: Module, *, dtype: str, seed: int) -> dict[str, mx.array]:
    """A value for each parameter of ``skeleton``, by the family's recipe.

    Args:
        dtype: dtype of all floating parameters except those that the model excludes.
        seed: added to the family's own seed.

    Raises:
        ModelError: there is no such dtype.
        FamilyError: a rule of the recipe matches no parameter.
    """
    if dtype not in DTYPES:
        raise ModelError(f"{family.name}: dtype {dtype!r} is none of {', '.join(DTYPES)}")
    seed += family.facts.seed
    found = parameters(skeleton)
    # Like mlx_lm.convert: all floating parameters except those that the model excludes.
    castable: Callable[[str], bool] | None = None
    if dtype != "float32":
        castable = getattr(skeleton, "cast_predicate", None)
    floating = {
        path: tuple(value.shape)
        for path, value in found.items()
        if mx.issubdtype(value.dtype, mx.floating)
    }
    weights: dict[str, mx.array] = {}
    for path, drawn in make_weights(floating, family.facts.weights, seed=seed).items():
        excluded = castable is not None and not castable(path)
        weights[path] = mx.array(drawn).astype(mx.float32 if excluded else getattr(mx, dtype))
    for path, value in found.items():
        if value.dtype in _PACKED:
            shape = tuple(value.shape)
            weights[path] = mx.array(make_packed(path, shape, _PACKED[value.dtype], seed=seed))
        elif path not in weights:
            weights[path] = value
    return weights | _packed(family, skeleton, weights) if family.facts.weights.packed else weights


def _packed(family: Family, skeleton: Module, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Quantized weights of those modules that the libraries' converters quantize.

    Encoders of media are left as they are, and so are modules for which the model excludes it or
    names other bits, and those whose rows can't be cut into groups. The config may give a module
    options of its own, by its path.
    """
    asked = family.config["quantization"]
    chosen = getattr(skeleton, "quant_predicate", None)
    modules: Any = tree_flatten(skeleton.leaf_modules(), is_leaf=Module.is_module)
    names = {path for path, _ in modules}
    language = (
        "language_model." if any(path.startswith("language_model.") for path in names) else ""
    )
    found: dict[str, mx.array] = {}
    for path, module in modules:
        weight = weights.get(f"{path}.weight")
        own = {key: value for key, value in asked.get(path, asked).items() if key in _OPTIONS}
        if weight is None or not hasattr(module, "to_quantized"):
            continue
        if weight.shape[-1] % own["group_size"] or not path.startswith(language):
            continue
        if chosen is None or chosen(path, module) is True:
            parts = zip(_PARTS, mx.quantize(weight, **own), strict=False)  # some have no biases
            found |= {f"{path}.{name}": value for name, value in parts}
    return found


def parameters(model: Module) -> dict[str, mx.array]:
    """All parameters of a model, by their paths."""
    module: Any = model
    return dict(tree_flatten(module.parameters()))


def first_not_finite(found: dict[str, mx.array]) -> str | None:
    """The path of a parameter with NaN or infinity; each is freed after it was checked."""
    for path in list(found):
        value = found.pop(path)
        if mx.issubdtype(value.dtype, mx.floating) and not mx.all(mx.isfinite(value)).item():
            return path
    return None


def verify(family: Family, model: Module, written: dict[str, mx.array]) -> None:
    """Check that every loaded parameter equals the written one, or a projection of it.

    A projection (to unit rows, for example) changes weights once, but not when it runs again. Any
    other ``sanitize`` that changes weights in the library's own format damages converted models.

    Raises:
        ModelError: names the first parameter that differs.
    """
    loaded = parameters(model)
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
    if not ulps or not mx.issubdtype(one.dtype, mx.floating):
        return bool(mx.array_equal(one, other).item())
    return bool(mx.allclose(one, other, rtol=ulps * mx.finfo(one.dtype).eps, atol=0.0).item())


@contextlib.contextmanager
def library_errors(family: Family, doing: str) -> Iterator[None]:
    """Turn every exception of the library into this project's errors, with the library's message.

    Importing a model may even call ``sys.exit`` after printing a message, which is then used.

    Raises:
        Unsupported: the library (or the array library below it) reports that it cannot do this
        here. ModelError: anything else went wrong.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except ConformanceError:
        raise
    except SystemExit as error:
        message = printed.getvalue().strip() or f"exit status {error.code}"
        raise Unsupported(f"{family.name}: {message}") from error
    except Exception as error:
        message = str(missing_name(error) or error)
        if isinstance(error, ImportError) or says_unsupported(error):
            raise Unsupported(f"{family.name}: {message}") from error
        name = type(error).__name__
        raise ModelError(f"{family.name}: {doing} failed: {name}: {message}") from error


def cast(model: Module, dtype: str) -> None:
    """Cast all floating parameters to ``dtype``, except those that the model excludes.

    Scales of quantized weights are cast, packed weights are not.
    """
    wanted: mx.Dtype = getattr(mx, dtype)
    castable = getattr(model, "cast_predicate", None) if dtype != "float32" else None

    def one(path: str, value: mx.array) -> mx.array:
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(wanted) if floating and (not castable or castable(path)) else value

    model.update(tree_map_with_path(one, model.parameters()))


def fingerprint(model: Module) -> str:
    """SHA-256 of the path, dtype, shape and bits of all parameters, in the order of their paths."""
    digest = hashlib.sha256()
    found: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for path, value in sorted(found.items()):
        digest.update(f"{path} {value.dtype} {tuple(value.shape)}\n".encode())
        bits = mx.contiguous(value).reshape(-1)
        raw = bits.astype(mx.uint8) if value.dtype == mx.bool_ else bits.view(mx.uint8)
        digest.update(np.array(raw).tobytes())
    return digest.hexdigest()
