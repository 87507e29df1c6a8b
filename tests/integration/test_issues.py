"""The texts of upstream issues: each has a short script, and what it prints in its release."""

import ast
import importlib.metadata
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group
from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.defects import issue_scripts
from conformance.core.errors import ExpectationError
from conformance.core.known_defect import TOP, releases
from conformance.run.coverage import defects_upstream
from conformance.run.registry import build_registry

ROOT = Path(__file__).parents[2]
ISSUES = ROOT / "expectations" / "issues"
SCRIPTS = issue_scripts()
# Servers start here; what a row draws beside another depends on the moment at which it joins.
BY_DAY = "penalty-of-last-token"
OF_THE_MOMENT = "server-sampler-of-the-first"
MOST_LINES = 50


@pytest.fixture(scope="module")
def upstream():
    return defects_upstream(build_registry(), load_expectations())


def test_each_of_the_first_ten_has_one_of_the_release_that_the_page_is_about(upstream):
    newest = releases(upstream)
    for one in upstream[:TOP]:
        assert SCRIPTS[one.id].release == f"{one.package} {newest[one.package]}", one.id


def test_scripts_are_short_and_need_only_the_library():
    for name, one in SCRIPTS.items():
        assert one.script.count("\n") <= MOST_LINES, name
        tree = ast.parse(one.script)
        roots = {
            root.partition(".")[0]
            for node in ast.walk(tree)
            for root in (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
        }
        assert "conformance" not in roots, name


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n != BY_DAY)) for n in SCRIPTS],
)
def test_a_script_prints_what_is_kept(name):
    package, _, release = SCRIPTS[name].release.partition(" ")
    if importlib.metadata.version(package) != release:
        pytest.skip(f"its output is that of {package} {release}")
    made = runpy.run_path(str(ROOT / "ci" / "issues.py"))["printed"](ISSUES / f"{name}.py")
    kept = (ISSUES / f"{name}.txt").read_text(encoding="utf-8")
    if name == OF_THE_MOMENT:
        made, kept = ("\n".join(text.splitlines()[:2]) for text in (made, kept))
    assert made == kept, "run `python ci/issues.py`"


def test_a_script_that_shows_nothing_is_refused(tmp_path):
    (tmp_path / "penalty-of-last-token.py").write_text("print('right')\n")
    with pytest.raises(SystemExit, match="exit code 0: right"):
        runpy.run_path(str(ROOT / "ci" / "issues.py"))["printed"](
            tmp_path / "penalty-of-last-token.py"
        )


def test_a_script_without_output_is_an_error(tmp_path):
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "one.py").write_text("print(1)\n")
    with pytest.raises(ExpectationError, match=r"run python ci/issues\.py"):
        issue_scripts(tmp_path)


def show(*words):
    return CliRunner().invoke(group, ["show", "defects", *words])


def test_the_command_prints_the_text_ready_to_paste():
    done = show("penalty-of-last-token", "--issue")
    assert done.exit_code == 0, done.output
    one = SCRIPTS["penalty-of-last-token"]
    assert done.stdout.startswith("# generate and the command line apply repetition penalties")
    assert f"```python\n{one.script}```" in done.stdout
    assert f"```text\n{one.output}\n```" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--issue",), "name an ID; there are texts of"),
        (("mamba-padded-state", "--issue"), "conformance repro mamba-padded-state --issue"),
        (("penalty-of-last-tokn", "--issue"), "did you mean penalty-of-last-token?"),
    ],
)
def test_what_has_no_text_is_said_in_one_sentence(words, message):
    done = show(*words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
