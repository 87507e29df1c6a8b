"""What the documents say is true: verdicts, commands, options and paths that they name exist."""

import re
import subprocess
from functools import cache
from pathlib import Path

import click

from conformance.app.cli.main import group
from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "expectations/*.md", "tests/*.md")
    for path in ROOT.glob(pattern)
)

ENGINES = r"mlx_v?lm(_server|_batch_generate)?|vllm_mlx|rapid_mlx|mlx_o\w+_server|my_\w+"
LINES_MAX = {"README.md": 110, "ARCHITECTURE.md": 120, "CONTRIBUTING.md": 60}


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
        if isinstance(command, click.Group) and len(words) > 2 and not words[2].startswith("-"):
            command = command.get_command(context, words[2])
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
        if not re.match(rf"({ENGINES})/", name)
        and not any(_kept(place / name, root) for place in places)
    ]


def _kept(path, root):
    """Whether a clone would have it too: not what a run left in a folder that git ignores."""
    return path in _there(root)


@cache
def _there(root):
    """Files and folders of a clone; without git, as in a source archive, what lies there."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    files = [root / name for name in done.stdout.splitlines()]
    if done.returncode:
        files = [path for path in root.rglob("*.*") if path.is_file()]
    return {*files, *(folder for file in files for folder in file.parents)}


def test_the_table_of_results_has_every_verdict_with_its_glyph():
    assert verdict_table((ROOT / "docs/results.md").read_text(encoding="utf-8")) == GLYPHS


def test_what_is_read_first_stays_short():
    lines = {n: len((ROOT / n).read_text(encoding="utf-8").splitlines()) for n in LINES_MAX}
    assert {name: has for name, has in lines.items() if has > LINES_MAX[name]} == {}


def test_what_documents_name_is_there():
    texts = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in DOCUMENTS}
    assert {n: wrong for n, text in texts.items() if (wrong := wrong_calls(text))} == {}
    # The reference is written from the code, and names cases and schedules.
    by_hand = {n: text for n, text in texts.items() if not n.startswith("docs/reference/")}
    assert {n: lost for n, text in by_hand.items() if (lost := lost_paths(text, ROOT))} == {}


def test_a_wrong_call_is_found():
    text = (
        "```\nconformance run --famly x   # no\nconformance fly\nconformance show families\n```\n"
    )
    assert wrong_calls(text) == ["conformance run --famly x", "conformance fly"]


def test_a_wrong_call_of_a_command_within_a_command_is_found():
    text = "`conformance golden check --files-only`, `conformance golden check --fast`"
    assert wrong_calls(text) == ["conformance golden check --fast"]
    assert wrong_calls("`conformance golden polish`") == ["conformance golden polish"]
    assert wrong_calls("`conformance golden --fast`") == ["conformance golden --fast"]
    assert wrong_calls("`conformance audit power --quick`, `conformance golden`") == []


def test_a_name_that_a_command_had_before_is_found():
    assert wrong_calls("`conformance power --quick`") == ["conformance power --quick"]


def test_a_wrong_call_within_a_sentence_is_found():
    assert wrong_calls("Use `conformance show --colour CASE`.") == [
        "conformance show --colour CASE"
    ]


def test_a_lost_path_is_found():
    text = "`ci/setup.sh` and `ci/lost.sh`, `README.md` and `LOST.md`, `mlx_lm/models/plamo2.py`"
    assert lost_paths(text, ROOT) == ["ci/lost.sh", "LOST.md"]


def test_a_folder_without_files_is_lost(tmp_path):
    (tmp_path / "empty").mkdir()
    assert lost_paths("`empty/`", tmp_path) == ["empty/"]


def test_what_only_a_run_left_there_is_lost(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    for name in ("build", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(b"")
    assert lost_paths("`build/` and `kept/`", tmp_path) == ["build/"]


def test_a_wrong_table_is_found():
    assert verdict_table("| `.` | `exact` | when |\n| `?` | `tie` | when |\n") == {
        Verdict.EXACT: ".",
        Verdict.TIE: "?",
    }
