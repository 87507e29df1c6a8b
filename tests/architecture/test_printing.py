"""Commands print by two modules, which makes text of files harmless; no other way leads out."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHER_WAYS = re.compile(r"\bclick\.(echo|secho|style)\(|(?<!\w)Console\(|(?<![\w.])print\(")


def printers(folder: Path) -> list[str]:
    return [
        f"{path.name}:{number}"
        for path in sorted(folder.rglob("*.py"))
        if path.name not in ("printing.py", "consoles.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OTHER_WAYS.search(line)
    ]


def test_commands_print_by_those_modules():
    assert printers(ROOT / "conformance" / "app" / "cli") == []


def test_another_way_is_found(tmp_path):
    (tmp_path / "a.py").write_text("import click\nclick.echo(name)\nsay(name)\n")
    assert printers(tmp_path) == ["a.py:2"]
