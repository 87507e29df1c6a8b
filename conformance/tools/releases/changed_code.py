"""What a release changed in a library's code, and which families that reaches.

Files are read, not imported: neither release need be the installed one.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.core.family import Family
from conformance.core.upstream_functions import Place, digests
from conformance.run.reuse.import_graph import closure, imports_of, package_of

# An engine decodes each model with these, whatever the model's own files import.
_SHARED = ("generate", "generate.ar", "utils", "sample_utils", "prompt_utils", "models.cache")


@dataclass(frozen=True)
class Code:
    """A library's package folder.

    Attributes:
        folder: such as ``.../site-packages/mlx_lm``.
    """

    folder: Path

    def function(self, place: Place) -> str:
        """The digest of a place's function; empty if it is gone."""
        path = self.folder.parent / place.file
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        return digests(text).get(place.function, "")

    def modules(self) -> dict[str, Path]:
        """The files of all modules, by the module's name."""
        found = {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found


@dataclass(frozen=True)
class Touched:
    """What differs between two releases.

    Attributes:
        modules: changed, new and removed modules, by name.
        families: the families whose cases may run changed code, by name; each of the library if
            there are ``shared`` ones.
        lacking: families whose model the release does not have.
        shared: the changed modules that every case may run.
    """

    modules: tuple[str, ...]
    families: tuple[str, ...]
    lacking: tuple[str, ...]
    shared: tuple[str, ...]


def touched(before: Code, after: Code, families: Sequence[Family]) -> Touched:
    """What the later of two releases changed.

    A family is touched if a changed module is one of its model's, or is imported by these.
    """
    old, new = before.modules(), after.modules()
    changed = {
        name
        for name in old.keys() | new.keys()
        if not name.endswith("version")  # which every release changes
        if name not in old or name not in new or _differ(old[name], new[name])
    }
    package = after.folder.name

    @functools.cache
    def imported(name: str) -> set[str]:
        """The modules of either release that the module imports, in either release."""
        paths = [modules[name] for modules in (old, new) if name in modules]
        named = {one for p in paths for one in imports_of(p, package_of(name, p)) or ()}
        return named & (old.keys() | new.keys())

    shared = closure((f"{package}.{name}" for name in _SHARED), imported) & changed
    lacking = [f for f in families if not _of_model(f, package, new) and _of_model(f, package, old)]
    left = [family for family in families if family not in lacking]
    found = [
        family
        for family in left
        if shared or closure(_of_model(family, package, new), imported) & changed
    ]
    return Touched(
        modules=tuple(sorted(changed)),
        families=tuple(family.name for family in found),
        lacking=tuple(family.name for family in lacking),
        shared=tuple(sorted(shared)),
    )


def _of_model(family: Family, package: str, *modules: Mapping[str, Path]) -> set[str]:
    """The modules of a family's model."""
    own = f"{package}.models.{family.module}"
    names = {name for each in modules for name in each}
    return {name for name in names if name == own or name.startswith(f"{own}.")}


def _differ(one: Path, other: Path) -> bool:
    """Whether the code of two files differs, comments aside."""
    texts = one.read_bytes(), other.read_bytes()
    try:
        return texts[0] != texts[1] and len({ast.dump(ast.parse(text)) for text in texts}) > 1
    except SyntaxError:
        return True
