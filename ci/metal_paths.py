"""Lists what only Metal runs in mlx-lm and mlx-vlm: ``python ci/metal_paths.py``, to docs/gpu.md.

That is: each kernel in Metal's language (``mx.fast.metal_kernel``), and each place that asks
whether there is Metal or a GPU, by file and line of the installed releases. The libraries are not
imported. With --check nothing is written; 1 if the document has another list.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from conformance.report.markdown import between, table

DOCUMENT = Path(__file__).parents[1] / "docs" / "gpu.md"
BEGIN, END = "<!-- metal_paths.py -->", "<!-- end of metal_paths.py -->"
PACKAGES = {"mlx_lm": "mlx-lm", "mlx_vlm": "mlx-vlm"}
KERNEL, QUESTION = "kernel", "question"


@dataclass(frozen=True, order=True)
class Place:
    """A line that makes a Metal kernel, or asks about Metal or the device.

    Attributes:
        file: from its package on, as ``mlx_lm/models/ssm.py``.
        name: the enclosing function or the assigned variable; empty if there is neither.
    """

    file: str
    line: int
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def places() -> list[Place]:
    """All places in the installed libraries, in the order of their files."""
    found = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                name = f"{package}/{path.relative_to(folder).as_posix()}"
                found += places_in(path.read_text(encoding="utf-8"), name)
    return found


def places_in(text: str, file: str) -> list[Place]:
    """The distinct places in one module."""
    if not re.search(r"metal|default_device", text):
        return []  # most; to look at each node of a module takes a while
    return sorted(set(_places(ast.parse(text), file, "")))


def _places(node: ast.AST, file: str, name: str) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        inside = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = child.name
        elif isinstance(child, ast.Assign) and not name and isinstance(child.targets[0], ast.Name):
            inside = child.targets[0].id
        if kind := _kind(child):
            yield Place(file, child.lineno, kind, inside)  # type: ignore[attr-defined]
        yield from _places(child, file, inside)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "metal_kernel":
            return KERNEL
        if ast.unparse(node.func).startswith("mx.metal."):
            return QUESTION
    if isinstance(node, ast.Compare) and "mx.default_device()" in ast.unparse(node):
        return QUESTION
    return ""


def text_of(found: list[Place]) -> str:
    """The document's text about these places."""
    releases = " and ".join(f"{name} {version(name)}" for name in PACKAGES.values())
    kernels = [place for place in found if place.kind == KERNEL]
    files = list(dict.fromkeys(place.file for place in found))
    rows = [(f"`{file}`", *_cells([p for p in found if p.file == file])) for file in files]
    head = ("file", "kernels, by line", "asks for Metal or the device, in line")
    return "\n".join(
        [
            f"{releases}: {len(kernels)} kernels, and {len(found) - len(kernels)} places that ask, "
            f"in {len(files)} files. **None is measured on Metal yet.**",
            "",
            *table(head, rows),
        ]
    )


def _cells(found: list[Place]) -> tuple[str, str]:
    kernels = [p for p in found if p.kind == KERNEL]
    asks = dict.fromkeys(str(p.line) for p in found if p.kind == QUESTION)
    return ", ".join(f"{p.line} `{p.name}`" for p in kernels), ", ".join(asks)


def main() -> int:
    """Write the list, or compare it with the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    kept = DOCUMENT.read_text(encoding="utf-8")
    made = between(kept, BEGIN, END, text_of(places()))
    if check:
        return int(made != kept)
    DOCUMENT.write_text(made, encoding="utf-8")
    print(f"{DOCUMENT.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
