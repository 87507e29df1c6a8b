"""What the documents say is true: verdicts, commands, options and paths that they name exist."""

import re
from pathlib import Path

import click
import pytest

from conformance.cli.main import group
from conformance.report.matrix import GLYPHS
from conformance.verdict import Verdict

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "expectations/*.md", "tests/*.md")
    for path in ROOT.glob(pattern)
)


def verdict_table(text):
    """Glyph of each verdict, from the table's rows."""
    rows = re.findall(r"^\| `(.)` \| `(\w+)` \|", text, re.MULTILINE)
    return {Verdict(name): glyph for glyph, name in rows}


def calls(text):
    """The words of each call of the command in a document, comments taken off."""
    found = re.findall(r"(?:^|`)(conformance [a-z][^`\n#]*)", text, re.M)
    return [call.split() for call in found]


def wrong_calls(text):
    """Calls of a command or with an option that is not there."""
    context = click.Context(group)
    wrong = []
    for words in calls(text):
        command = group.get_command(context, words[1])
        known = {o for p in command.params for o in p.opts} | {"--help"} if command else set()
        used = {word for word in words[2:] if word.startswith("-")}
        if command is None or used - known:
            wrong.append(" ".join(words))
    return wrong


def lost_paths(text, root):
    """Paths in backticks that are not there; those with placeholders are not meant."""
    names = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|py))`", text)
    places = [root, root / "conformance", root / "tests", root / "conformance/plugins/mlx_lm"]
    places += [root / "conformance/plugins/mlx_lm/families"]
    return [
        name
        for name in names
        if not re.match(r"(mlx_lm|mlx_vlm|my_\w+)/", name)
        and not any(_tracked(place / name) for place in places)
    ]


def _tracked(path):
    """Whether a clone would have it too: a file, or a folder with files in it."""
    return path.is_file() or (path.is_dir() and any(p.is_file() for p in path.rglob("*.*")))


def test_the_readmes_table_has_every_verdict_with_its_glyph():
    assert verdict_table((ROOT / "README.md").read_text(encoding="utf-8")) == GLYPHS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(path):
    text = path.read_text(encoding="utf-8")
    assert wrong_calls(text) == []
    assert lost_paths(text, ROOT) == []


def test_a_wrong_call_is_found():
    text = (
        "```\nconformance run --famly x   # no\nconformance fly\nconformance list families\n```\n"
    )
    assert wrong_calls(text) == ["conformance run --famly x", "conformance fly"]


def test_a_wrong_call_within_a_sentence_is_found():
    assert wrong_calls("Use `conformance show --loud CASE`.") == ["conformance show --loud CASE"]


def test_a_lost_path_is_found():
    text = "`ci/setup.sh` and `ci/lost.sh`, `README.md` and `LOST.md`, `mlx_lm/models/plamo2.py`"
    assert lost_paths(text, ROOT) == ["ci/lost.sh", "LOST.md"]


def test_a_folder_without_files_is_lost(tmp_path):
    (tmp_path / "empty").mkdir()
    assert lost_paths("`empty/`", tmp_path) == ["empty/"]


def test_a_wrong_table_is_found():
    assert verdict_table("| `.` | `exact` | when |\n| `?` | `tie` | when |\n") == {
        Verdict.EXACT: ".",
        Verdict.TIE: "?",
    }
