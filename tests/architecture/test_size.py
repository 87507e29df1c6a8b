"""Functions stay small enough to be read, and each module says what it is for."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FUNCTION_LINES_MAX = 80


def long_functions(root: Path) -> list[str]:
    """Functions of conformance/ that have too many lines, docstring included."""
    return [
        f"{path.relative_to(root)}:{node.lineno} {node.name} has {size} lines, "
        f"{FUNCTION_LINES_MAX} are allowed"
        for path, text in modules(root / "conformance")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def without_docstring(root: Path) -> list[str]:
    """Modules of conformance/, tests/ and docs/ that do not say what they are for."""
    return [
        f"{path.relative_to(root)} has no docstring"
        for folder in ("conformance", "tests", "docs")
        for path, text in modules(root / folder)
        if not ast.get_docstring(ast.parse(text))
    ]


def without_scope(root: Path) -> list[str]:
    """Folders of conformance/ whose docstring does not say, too, what belongs elsewhere."""
    return [
        f"{path.relative_to(root)} says what is there, but not what belongs elsewhere"
        for path, text in modules(root / "conformance")
        if path.name == "__init__.py" and "\n\n" not in (ast.get_docstring(ast.parse(text)) or "")
    ]


def modules(folder: Path) -> list[tuple[Path, str]]:
    """All Python files below a folder with their text."""
    return [(path, path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]


RULES = (long_functions, without_docstring)

BODY = "    pass\n"
PLANTED = {
    long_functions: (
        "class A:\n  def f():\n" + BODY * FUNCTION_LINES_MAX,
        "class A:\n  def f():\n" + BODY * (FUNCTION_LINES_MAX - 1),
    ),
    without_docstring: ("# A comment is none.\nimport ast\n", '"""What it is for."""\n'),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule):
    assert rule(ROOT) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_what_is_wrong_and_nothing_else(rule, tmp_path):
    wrong, right = PLANTED[rule]
    path = tmp_path / "conformance" / "inner" / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(wrong, encoding="utf-8")
    (sentence,) = rule(tmp_path)
    assert sentence.startswith("conformance/inner/module.py")
    path.write_text(right, encoding="utf-8")
    assert rule(tmp_path) == []


def test_tests_need_a_docstring_too(tmp_path):
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_x.py").write_text("import x\n", encoding="utf-8")
    assert without_docstring(tmp_path) == ["tests/unit/test_x.py has no docstring"]


def test_each_folder_says_what_belongs_elsewhere(tmp_path):
    assert without_scope(ROOT) == []
    path = tmp_path / "conformance" / "inner" / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text('"""What is there."""\n', encoding="utf-8")
    assert len(without_scope(tmp_path)) == 1
    path.write_text('"""What is there.\n\nThe rest is elsewhere.\n"""\n', encoding="utf-8")
    assert without_scope(tmp_path) == []
