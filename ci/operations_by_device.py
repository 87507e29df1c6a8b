"""Runs the operations of a golden's single stream on the CPU, and on the GPU with the same inputs.

    python ci/operations_by_device.py mlx_lm/phi3small

If a golden holds on a machine's CPU (`conformance golden check --cpu`) but not on its GPU, this
shows which mlx operation rounds differently there. For each operation it prints the call with the
largest difference, relative to the result's largest element, with the request and the shapes of the
inputs. Operations are those that Python calls, of `mlx.core` and of arrays; nothing is compiled.
Exit code 2 without a GPU.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from conformance.backend.device import use_cpu
from conformance.backend.uncompiled import uncompiled
from conformance.core.errors import ConformanceError
from conformance.core.schedule import Request
from conformance.run.registry import build_registry
from conformance.tools.golden.format import find_folder, golden_path, load_golden
from conformance.tools.golden.staging import WHOLE, load_subject, requests_of

MODULES = {"mx": mx, "mx.fast": mx.fast, "mx.fft": mx.fft, "mx.linalg": mx.linalg}
ON_ARRAYS = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__rtruediv__", "__pow__", "__rpow__", "__matmul__"),
    *("sum", "mean", "var", "square", "sqrt", "rsqrt", "exp", "log", "prod"),
)
# Functions that make no array, or a different one at each call; and scans: after mx.cumsum of one
# element on CUDA, its input, an array on the CPU, held other values (not traced in mlx).
LEFT_OUT = {"eval", "async_eval", "array", "synchronize", "array_equal", "clear_cache"}
LEFT_OUT |= {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}
SHOWN = 12

Function = Callable[..., Any]


@dataclass(frozen=True)
class Apart:
    """The call of an operation with the largest difference between its results."""

    difference: float
    name: str
    request: str
    shapes: str

    def __str__(self) -> str:
        return f"{self.difference:8.2g}  {self.name}({self.shapes}) in request {self.request!r}"


class Both:
    """Makes each call on the CPU, whose result the model uses, and again on another device.

    Args:
        again: makes a call on that device.
    """

    def __init__(self, again: Callable[[Function], Function]) -> None:
        self.request = ""
        self.worst: dict[str, Apart] = {}
        self._again = again
        self._inside = False

    def of(self, name: str, function: Function) -> Function:
        """The function of that name, run on both devices."""

        @functools.wraps(function)
        def made(*given: Any, **named: Any) -> Any:
            result = function(*given, **named)
            if not self._inside:
                self._inside = True
                try:
                    self._note(name, function, given, named, result)
                finally:
                    self._inside = False
            return result

        return made

    def _note(self, name: str, function: Function, given: Any, named: Any, result: Any) -> None:
        arrays = _arrays([given, named])
        want = _floats(result)
        if not arrays or not want:
            return
        if "stream" in named:
            named = {**named, "stream": None}
        got = _floats(self._again(function)(*given, **named))
        off = max((_apart(a, b) for a, b in zip(got, want, strict=True)), default=0.0)
        if name not in self.worst or off > self.worst[name].difference:
            shapes = ", ".join("x".join(map(str, array.shape)) or "1" for array in arrays)
            self.worst[name] = Apart(off, name, self.request, shapes)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Run mlx's functions and the operators of arrays on both devices inside the block."""
        with ExitStack() as stack:
            for prefix, module in MODULES.items():
                for name in dir(module):
                    function = getattr(module, name)
                    plain = callable(function) and not isinstance(function, type)
                    if plain and not name.startswith("_") and name not in LEFT_OUT:
                        own = self.of(f"{prefix}.{name}", function)
                        stack.enter_context(mock.patch.object(module, name, own))
            for name in ON_ARRAYS:
                own = self.of(f"array.{name}", getattr(mx.array, name))
                stack.enter_context(mock.patch.object(mx.array, name, own))
            yield


def _arrays(tree: Any) -> list[mx.array]:
    flat: Any = tree_flatten([tree])
    return [leaf for _, leaf in flat if isinstance(leaf, mx.array)]


def _floats(tree: Any) -> list[np.ndarray]:
    """The floating-point arrays in a result, as float64."""
    kept = [leaf for leaf in _arrays(tree) if mx.issubdtype(leaf.dtype, mx.floating)]
    return [np.array(leaf.astype(mx.float32)).astype(np.float64) for leaf in kept]


def _apart(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference relative to the largest finite element."""
    finite = np.isfinite(want)
    if got.shape != want.shape or (finite != np.isfinite(got)).any():
        return float("inf")
    if not finite.any():
        return 0.0
    size = np.abs(want[finite]).max()
    return float(np.abs(got[finite] - want[finite]).max() / (size or 1.0))


def on_gpu(function: Function) -> Function:
    """A function of mlx that runs on the GPU."""

    def made(*given: Any, **named: Any) -> Any:
        with mx.stream(mx.Device(mx.DeviceType.gpu)):
            result = function(*given, **named)
            mx.eval(_arrays(result))
        return result

    return made


def played(name: str, again: Callable[[Function], Function]) -> list[Apart]:
    """The worst call of each operation in the single streams of a golden, worst first.

    Args:
        name: library and family, as ``mlx_lm/phi3small``.

    Raises:
        ConformanceError: there is no such family, or it has no golden.
    """
    registry = build_registry()
    library, _, family = name.partition("/")
    if (library, family) not in registry.families:
        raise ConformanceError(f"{name}: no such family; it is LIBRARY/FAMILY, as mlx_lm/llama")
    golden = load_golden(golden_path(find_folder(None), library, family))
    subject = load_subject(registry.libraries[library], registry.families[library, family])
    requests_of(subject)  # some processors recognise only prompts that they have composed
    both = Both(again)

    def play(request: Request, tokens: tuple[int, ...]) -> None:
        both.request = request.request_id
        subject.library.single_stream(
            subject.model, request, options=WHOLE, steps=len(tokens), forced=tokens
        )

    with uncompiled():  # a compiled function would be seen only as a whole
        for recorded in golden.requests:
            with both.patched():
                play(recorded.request, recorded.tokens)
    return sorted(both.worst.values(), key=lambda found: -found.difference)


def main() -> int:
    """Print the operations that differ most."""
    if len(sys.argv) != 2:
        print("python ci/operations_by_device.py LIBRARY/FAMILY", file=sys.stderr)
        return 2
    if not mx.is_available(mx.Device(mx.DeviceType.gpu)):
        print("this needs a GPU that mlx can use", file=sys.stderr)
        return 2
    use_cpu()  # before the libraries are imported, since they take their stream then
    try:
        found = played(sys.argv[1], on_gpu)
    except ConformanceError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{sys.argv[1]}, mlx {version('mlx')}: {len(found)} operations; the farthest apart:")
    print("\n".join(map(str, found[:SHOWN])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
