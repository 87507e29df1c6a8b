"""Imports go downward only, nothing goes round, and each heavy dependency has its place."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The layer of each module or package directly under conformance/; a new one must be put into one.
LAYERS = {
    1: "errors json_object sealing other_thread options schedule trace picture verdict family "
    "grammar",
    2: "numerics compare checks lingering golden expectations hookspecs",
    3: "engine library hosting registry selection coverage phases weights sensitivity noise "
    "backend reference scenarios faults subject failures runner judging probing session "
    "diagnosis proof checkpoints smoke proving throughput caches adoption vectors report "
    "schema bench explore explain repro regeneration independent releases html",
    4: "plugins",
    5: "cli pytest_plugin suite __main__",
}
ANY = len(LAYERS)  # what is in no layer is told once, by a rule of its own
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}

# External packages, and the parts of conformance/ that may import them.
PLACES = {
    "mlx": "backend caches reference plugins faults",
    "mlx_lm": "backend caches reference plugins faults",
    "mlx_vlm": "backend caches reference plugins faults",
    "pytest": "cli pytest_plugin suite",
    "xdist": "cli pytest_plugin suite",
    "syrupy": "pytest_plugin suite",
    "click": "cli",
    "rich": "report cli pytest_plugin",
    "jinja2": "html repro",
    "hypothesis": "caches explore pytest_plugin suite",
    "torch": "independent",
    "transformers": "independent plugins",
}
# Found by their entry points; nobody imports them.
NOT_IMPORTED = "plugins"
# Works on results alone.
REPORT_MAY_IMPORT = "report schema errors options schedule trace picture verdict"


@dataclass(frozen=True)
class Import:
    """One import: module ``source`` at ``line`` needs module ``target``."""

    source: str
    line: int
    target: str
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def part(module: str) -> str:
    """The module or package directly under conformance/ that ``module`` belongs to."""
    return module.partition(".")[2].partition(".")[0]


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
            yield Import(source, node.lineno, target, id(node) in typing_only)


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def without_layer(root: Path) -> list[str]:
    """Modules and packages that nobody has put into a layer."""
    names = {path.stem for path in (root / "conformance").glob("*.py")}
    names |= {path.parent.name for path in (root / "conformance").glob("*/__init__.py")}
    return [
        f"conformance.{name} is in no layer"
        for name in sorted(names - {"__init__"} - set(LAYER_OF))
    ]


def upward(root: Path) -> list[str]:
    """Imports of a higher layer; what is imported for annotations alone is free."""
    return [
        f"{found}, which is in a higher layer"
        for found in imports(root)
        if not found.typing_only
        and found.target.startswith("conformance.")
        and LAYER_OF.get(part(found.source), ANY) < LAYER_OF.get(part(found.target), 0)
    ]


def cycles(root: Path) -> list[str]:
    """Parts of conformance/ that need each other."""
    needs: dict[str, set[str]] = {}
    for found in imports(root):
        source, target = part(found.source), part(found.target)
        if not found.typing_only and found.target.startswith("conformance.") and source != target:
            needs.setdefault(source, set()).add(target)
    reach = {name: set(direct) for name, direct in needs.items()}
    for _ in needs:
        for known in reach.values():
            known.update(*(reach.get(near, set()) for near in tuple(known)))
    return [f"conformance.{name} needs itself" for name, known in reach.items() if name in known]


def misplaced(root: Path) -> list[str]:
    """Imports of an external package where it has no place."""
    return [
        f"{found}, which only {PLACES[package]} may"
        for found in imports(root)
        if (package := found.target.split(".")[0]) in PLACES
        and part(found.source) not in PLACES[package].split()
    ]


def plugins_imported(root: Path) -> list[str]:
    """Imports of a plugin from outside of it."""
    return [
        f"{found}: plugins are found by their entry points"
        for found in imports(root)
        if part(found.target) == NOT_IMPORTED
        and found.target.startswith("conformance.")
        and part(found.source) != NOT_IMPORTED
    ]


def report_looks_further(root: Path) -> list[str]:
    """Imports that would make a report need more than results."""
    return [
        f"{found}: a report is made from results alone"
        for found in imports(root)
        if part(found.source) == "report"
        and found.target.startswith("conformance.")
        and part(found.target) not in REPORT_MAY_IMPORT.split()
    ]


RULES = (without_layer, upward, cycles, misplaced, plugins_imported, report_looks_further)

# For each rule: a tree that breaks it, and one that is close to it but does not.
PLANTED = {
    without_layer: ({"novelty.py": ""}, {"errors.py": ""}),
    upward: (
        {"trace.py": "def f():\n    from conformance.runner import play\n", "runner.py": ""},
        {
            "trace.py": "if TYPE_CHECKING:\n    from conformance.runner import play\n",
            "runner.py": "",
        },
    ),
    cycles: (
        {
            "truth.py": "from conformance import runner\n",
            "runner.py": "import conformance.judge\n",
            "judge.py": "from .truth import Truth\n",
        },
        {
            "truth.py": "from conformance import runner\n",
            "runner.py": "import conformance.errors\n",
        },
    ),
    misplaced: (
        {"runner.py": "import mlx.core as mx\n"},
        {"plugins/mlx_lm/engine.py": "import mlx.core as mx\n"},
    ),
    plugins_imported: (
        {"cli/main.py": "from conformance.plugins.mlx_lm import engine\n"},
        {"plugins/mlx_lm/engine.py": "from conformance.plugins.mlx_lm import compat\n"},
    ),
    report_looks_further: (
        {"report/matrix.py": "from conformance.registry import Registry\n"},
        {"report/matrix.py": "from conformance.verdict import Verdict\n"},
    ),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule):
    assert rule(ROOT) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_tells_right_from_wrong(rule, tmp_path):
    wrong, right = (
        plant(tmp_path / name, files)
        for name, files in zip(("wrong", "right"), PLANTED[rule], strict=True)
    )
    assert len(rule(wrong)) >= 1
    assert rule(right) == []


@pytest.mark.parametrize("package", PLACES)
def test_each_external_package_has_a_place(package, tmp_path):
    root = plant(tmp_path, {"verdict.py": f"from {package}.inner import thing\n"})
    assert misplaced(root) == [
        f"conformance.verdict:1 imports {package}.inner, which only {PLACES[package]} may"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "import conformance.runner",
        "from conformance import runner",
        "from conformance.runner import play",
        "from .runner import play",
        "from . import runner",
    ],
)
def test_every_way_to_write_an_import_is_seen(line, tmp_path):
    root = plant(tmp_path, {"trace.py": line, "runner.py": ""})
    assert upward(root) == [
        "conformance.trace:1 imports conformance.runner, which is in a higher layer"
    ]


def plant(root: Path, files: dict[str, str]) -> Path:
    """A tree with these files in conformance/."""
    for name, text in files.items():
        path = root / "conformance" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        (path.parent / "__init__.py").touch()
    return root
