"""The files of the installed libraries to mutate: by default, the code of batching."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.user_cache import user_cache
from conformance.report.mutants import Mutant

BATCHING = {
    "mlx_lm": (
        "mlx_lm/generate.py",
        "mlx_lm/sample_utils.py",
        "mlx_lm/models/base.py",
        "mlx_lm/models/cache.py",
        "mlx_lm/models/gated_delta.py",
        "mlx_lm/models/rope_utils.py",
        "mlx_lm/models/ssm.py",
    ),
    "mlx_vlm": (
        "mlx_vlm/apc*.py",
        "mlx_vlm/generate/ar.py",
        "mlx_vlm/generate/common.py",
        "mlx_vlm/kv_quant.py",
        "mlx_vlm/sample_utils.py",
        "mlx_vlm/turboquant.py",
        "mlx_vlm/models/base.py",
        "mlx_vlm/models/cache.py",
        "mlx_vlm/models/gated_delta.py",
        "mlx_vlm/models/rope_utils.py",
        "mlx_vlm/models/sparse_attention.py",
        "mlx_vlm/models/ssm.py",
    ),
}
"""Generators, caches, masks, positions, recurrent scans, samplers and prefix stores."""


BESIDE = {"mlx_lm": ("gemma4_text", "kimi_k3", "llama-dynamic", "minicpm3", "olmo3", "olmo_hybrid")}
"""Families in addition to one of each kind of cache: with other rotations and gates."""


def files_of(library: str, globs: Sequence[str]) -> dict[str, Path]:
    """The files of a library that match, by their names below the installed packages.

    Args:
        globs: for example ``mlx_lm/models/cache.py``; if empty, the files of batching.

    Raises:
        ConformanceError: there is no such library, or a pattern matches no file.
    """
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        raise ConformanceError(f"{library} is not installed")
    root = Path(next(iter(spec.submodule_search_locations)))
    wanted = tuple(globs) or BATCHING.get(library, ())
    if not wanted:
        raise ConformanceError(f"{library}: name the files to mutate, as --module {library}/x.py")
    names = sorted(f"{root.name}/{p.relative_to(root).as_posix()}" for p in root.rglob("*.py"))
    found: dict[str, Path] = {}
    for glob in wanted:
        matching = [name for name in names if fnmatchcase(name, glob)]
        if not matching:
            raise ConformanceError(f"--module: no file of {root} matches {glob!r}")
        found |= {name: root.parent / name for name in matching}
    return found


def mutants_in(files: dict[str, Path], functions: Sequence[str] = ()) -> tuple[Mutant, ...]:
    """The mutants of these files, each file's mutants in the order of its lines.

    They are kept in the user's cache, by the contents of the file.

    Args:
        functions: globs of ``Class.method``; all by default.

    Raises:
        ConformanceError: a file is not Python.
    """
    found = [mutant for module, path in files.items() for mutant in _kept(module, path)]
    if not functions:
        return tuple(found)
    kept = tuple(m for m in found if any(fnmatchcase(m.function, glob) for glob in functions))
    if not kept:
        raise ConformanceError(f"--function: nothing of these files matches {', '.join(functions)}")
    return kept


class _Made(msgspec.Struct, frozen=True):
    """The kept mutants of a file, and the release of mutmut that made them."""

    mutmut: str
    mutants: tuple[Mutant, ...]


def _kept(module: str, path: Path) -> tuple[Mutant, ...]:
    """The mutants of a file, made by mutmut unless they are kept."""
    text = path.read_text(encoding="utf-8")
    name = f"{path.stem}-{_digest(f'{module} {_maker()} {text}')}.json"
    kept = user_cache() / "mutants" / "made" / name
    release = _release()
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        made = msgspec.json.decode(kept.read_bytes(), type=_Made)
        if release in ("", made.mutmut):
            return made.mutants
    with needing_extra():
        mutating = importlib.import_module("conformance.power.mutants.mutating")
    try:
        found: tuple[Mutant, ...] = mutating.mutants_of(module, text)
    except Exception as error:
        raise ConformanceError(f"{path} is not Python: {error}") from error
    with contextlib.suppress(OSError):  # otherwise they are made again the next time
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.encode(_Made(release, found)))
    return found


@contextlib.contextmanager
def needing_extra() -> Iterator[None]:
    """Inside the block, import packages that only this command needs.

    Raises:
        ConformanceError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConformanceError(
            f"conformance audit mutants needs {error.name}: pip install 'mlx-conformance[mutants]'"
        ) from error


def _release() -> str:
    """The release of mutmut; empty if it is not installed."""
    try:
        return importlib.metadata.version("mutmut")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _maker() -> str:
    """A hash of the module that makes mutants."""
    file = resources.files("conformance.power.mutants") / "mutating.py"
    return _digest(file.read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
