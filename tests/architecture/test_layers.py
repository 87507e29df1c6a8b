"""Folders in import order: each imports those above it; each heavy package has its place."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The folders of conformance/: each may import those before it.
ORDER = (
    "core",
    "backend",
    "scenarios",
    "checks",
    "report",
    "reference",
    "run",
    "tools",
    "plugins",
    "power",
    "app",
    "suite",
)
# What else lies there. The package's own __init__ gives the public names of all folders.
BESIDE = {"__init__", "__main__", "faults"}
ENTRIES_MAX = 15

# Commands that prove the checks; whoever else needs power/ imports it where it is asked for.
PROVING = ("app/cli/audit", "app/cli/golden/verify")

# External packages, and the folders that may import them.
PLACES = {
    "mlx": "backend reference power plugins",
    "mlx_lm": "backend reference power plugins",
    "mlx_vlm": "backend reference power plugins",
    "pytest": "app suite",
    "xdist": "app",
    "syrupy": "app/pytest_plugin suite",
    "click": "app/cli",
    "rich": "report app",
    "jinja2": "report/pages tools/new_engine tools/repro",
    "hypothesis": "power/caches tools/explore app/pytest_plugin suite",
    "mutmut": "power/mutants",
    "libcst": "power/mutants",
    "coverage": "power/mutants",
    "distributed": "app/cluster",
    "torch": "power/transformers_check",
    "transformers": "power/transformers_check plugins",
}


@dataclass(frozen=True)
class Import:
    """One import: module ``source`` at ``line`` needs module ``target``; ``lazy`` in a function."""

    source: str
    line: int
    target: str
    typing_only: bool
    lazy: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def folder(module: str) -> str:
    """The entry directly under conformance/ that ``module`` belongs to."""
    return module.partition(".")[2].partition(".")[0]


def internal(root: Path) -> Iterator[Import]:
    """Imports between folders of conformance/, those for annotations alone included."""
    for found in imports(root):
        ends = folder(found.source), folder(found.target)
        if found.target.startswith("conformance.") and set(ends) <= set(ORDER):
            yield found


@functools.cache
def imports(root: Path) -> tuple[Import, ...]:
    """All imports in conformance/ under ``root``."""
    return tuple(
        found
        for path in sorted((root / "conformance").rglob("*.py"))
        for found in _imports_of(root, path)
    )


def _imports_of(root: Path, path: Path) -> Iterator[Import]:
    package = path.relative_to(root).with_suffix("").parts
    is_package = package[-1] == "__init__"
    source = ".".join(package[:-1] if is_package else package)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else ()
            start = ".".join((*base, *filter(None, [node.module])))
            names = [f"{start}.{alias.name}" for alias in node.names]
            targets = [name if _is_module(root, name) else start for name in names]
        else:
            continue
        for target in targets:
            yield Import(source, node.lineno, target, id(node) in typing_only, id(node) in lazy)


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def out_of_order(root: Path) -> list[str]:
    """Entries of conformance/ that have no place in the order, and too many of them."""
    there = {path.stem for path in (root / "conformance").glob("*.py")}
    there |= {path.parent.name for path in (root / "conformance").glob("*/__init__.py")}
    found = [f"conformance/{name} is not in ORDER" for name in sorted(there - BESIDE - {*ORDER})]
    if len(there) > ENTRIES_MAX:
        found.append(f"conformance/ has {len(there)} entries, {ENTRIES_MAX} are allowed")
    return found


def upward(root: Path) -> list[str]:
    """Imports of a folder that comes later in the order."""
    return [
        f"{found}, which comes later"
        for found in internal(root)
        if ORDER.index(folder(found.source)) < ORDER.index(folder(found.target))
    ]


def circular(root: Path) -> list[str]:
    """Modules that need themselves by way of others; a package and its modules count apart."""
    needs: dict[str, set[str]] = {}
    for found in imports(root):
        if not found.typing_only and found.target.startswith("conformance."):
            needs.setdefault(found.source, set()).add(found.target)
    while leaves := [name for name, targets in needs.items() if not targets & needs.keys()]:
        for name in leaves:
            del needs[name]
    return [f"{name} is in a circle or needs one" for name in sorted(needs)]


def misplaced(root: Path) -> list[str]:
    """Imports of an external package where it has no place."""
    return [
        f"{found}, which only {PLACES[package]} may"
        for found in imports(root)
        if (package := found.target.split(".")[0]) in PLACES
        and not any(_below(found.source, place) for place in PLACES[package].split())
    ]


def _below(module: str, place: str) -> bool:
    name = f"conformance.{place.replace('/', '.')}"
    return module == name or module.startswith(f"{name}.")


def plugins_imported(root: Path) -> list[str]:
    """Imports of a plugin from outside of it."""
    return [
        f"{found}: plugins are found by their entry points"
        for found in internal(root)
        if folder(found.target) == "plugins" and folder(found.source) not in {"plugins", "power"}
    ]


def needing_power(root: Path) -> list[str]:
    """Imports of what proves the checks by what must work without it."""
    return [
        f"{found}: only commands that prove the checks may need it"
        for found in internal(root)
        if folder(found.target) == "power" != folder(found.source)
        and not any(_below(found.source, place) for place in PROVING)
        and not (folder(found.source) == "app" and found.lazy)
    ]


def report_looks_further(root: Path) -> list[str]:
    """Imports that would make a report need more than results."""
    return [
        f"{found}: a report is made from results alone"
        for found in internal(root)
        if folder(found.source) == "report" and folder(found.target) not in {"core", "report"}
    ]


RULES = (
    out_of_order,
    upward,
    circular,
    misplaced,
    plugins_imported,
    needing_power,
    report_looks_further,
)

# For each rule: a tree that breaks it, and one that is close to it but does not.
PLANTED = {
    out_of_order: ({"novelty.py": ""}, {"core/errors.py": ""}),
    upward: (
        {
            "core/trace.py": "def f():\n    from conformance.run import runner\n",
            "run/runner.py": "",
        },
        {"run/runner.py": "from conformance.core import trace\n", "core/trace.py": ""},
    ),
    circular: (
        {
            "run/truth.py": "from conformance.run import runner\n",
            "run/runner.py": "import conformance.run.judge\n",
            "run/judge.py": "from .truth import Truth\n",
        },
        {
            "run/truth.py": "from conformance.run import runner\n",
            "run/runner.py": "if TYPE_CHECKING:\n    import conformance.run.truth\n",
        },
    ),
    misplaced: (
        {"tools/explore/hunt.py": "import mlx.core as mx\n"},
        {"power/caches/rows.py": "import mlx.core as mx\n"},
    ),
    plugins_imported: (
        {"app/cli.py": "from conformance.plugins.mlx_lm import engine\n"},
        {
            "plugins/mlx_lm/engine.py": "from conformance.plugins.mlx_lm import compat\n",
            "power/faults/mlx_lm.py": "from conformance.plugins.mlx_lm import compat\n",
        },
    ),
    needing_power: (
        {"app/cli/explain.py": "from conformance.power import faults\n"},
        {
            "app/cli/explain.py": "def f():\n    from conformance.power import faults\n",
            "app/cli/audit/power.py": "from conformance.power import faults\n",
        },
    ),
    report_looks_further: (
        {"report/matrix.py": "from conformance.checks import CHECKS\n"},
        {"report/matrix.py": "from conformance.core.verdict import Verdict\n"},
    ),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule):
    assert rule(ROOT) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_what_is_wrong_and_nothing_else(rule, tmp_path):
    wrong, right = (
        plant(tmp_path / name, files)
        for name, files in zip(("wrong", "right"), PLANTED[rule], strict=True)
    )
    assert len(rule(wrong)) >= 1
    assert rule(right) == []


def test_more_entries_than_allowed_are_counted(tmp_path):
    root = plant(tmp_path, {f"part{number}.py": "" for number in range(ENTRIES_MAX)})
    said = f"conformance/ has {ENTRIES_MAX + 1} entries, {ENTRIES_MAX} are allowed"
    assert out_of_order(root)[-1] == said


def test_nothing_but_a_command_needs_power_even_where_it_is_asked_for(tmp_path):
    text = "def f():\n    from conformance.power import faults\n"
    files = {f"{name}/a.py": text for name in ("run", "report", "tools", "plugins", "suite")}
    found = needing_power(plant(tmp_path, files))
    assert [line.partition(":")[0] for line in found] == [
        f"conformance.{name}.a" for name in sorted(("run", "report", "tools", "plugins", "suite"))
    ]


def test_each_external_package_has_a_place(tmp_path):
    lines = [f"from {package}.inner import thing\n" for package in PLACES]
    root = plant(tmp_path, {"core/verdict.py": "".join(lines)})
    assert misplaced(root) == [
        f"conformance.core.verdict:{line} imports {package}.inner, which only {places} may"
        for line, (package, places) in enumerate(PLACES.items(), start=1)
    ]


def test_every_way_to_write_an_import_is_seen(tmp_path):
    ways = (
        "import conformance.run.runner",
        "from conformance.run import runner",
        "from conformance.run.runner import play",
        "from ..run.runner import play",
        "from ..run import runner",
        "if TYPE_CHECKING: from conformance.run import runner",
    )
    files = {f"core/way{number}.py": line for number, line in enumerate(ways)}
    root = plant(tmp_path, {**files, "run/runner.py": ""})
    assert upward(root) == [
        f"conformance.core.way{number}:1 imports conformance.run.runner, which comes later"
        for number in range(len(ways))
    ]


def plant(root: Path, files: dict[str, str]) -> Path:
    """A tree with these files in conformance/."""
    for name, text in files.items():
        path = root / "conformance" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        (path.parent / "__init__.py").touch()
        (root / "conformance" / "__init__.py").touch()
    return root
