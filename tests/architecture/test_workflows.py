"""Workflows are valid, and call the scripts of ci/, nothing else: what CI does, anybody can do."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conformance.core.verdict import CaseId

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

CALL = re.compile(r'bash (ci/\w+\.sh)(?: (?:[\w/.=-]+|"\$\w+"|\$\{\{ matrix\.\w+ \}\}(?:/\d+)?))*')

PLACE = ("PYTHON", "CONFORMANCE_EXTRAS", "CONFORMANCE_INSTALL")
"""What a job's libraries hang on beside its machine."""


def workflows(root):
    """Each workflow's path, and what it says."""
    found = sorted((root / ".github" / "workflows").glob("*.yml"))
    return [(path, yaml.safe_load(path.read_text(encoding="utf-8"))) for path in found]


def not_a_script(root):
    """Steps that do something else than call a script that is there."""
    return [
        f"{path.name}: {name}: {step['run'].strip()}"
        for path, workflow in workflows(root)
        for name, job in workflow["jobs"].items()
        for step in job.get("steps", ())
        if "run" in step
        and not ((call := CALL.fullmatch(step["run"].strip())) and (root / call[1]).is_file())
    ]


def not_where_it_ran(root):
    """Summaries, which explain failures, on another machine or with other libraries than shards."""
    found = []
    for path, workflow in workflows(root):
        jobs = workflow["jobs"]
        for name, job in jobs.items():
            if any("ci/summary.sh" in step.get("run", "") for step in job["steps"]):
                shards = jobs[job.get("needs", name)]
                if _place(job) != _place(shards):
                    found.append(f"{path.name}: {name}")
    return found


def options_of_pytest(root):
    """Summaries that get the shards' options, which ``conformance report`` does not have."""
    return [
        f"{path.name}: {name}"
        for path, workflow in workflows(root)
        for name, job in workflow["jobs"].items()
        for step in job["steps"]
        if "ci/summary.sh" in step.get("run", "")
        and "--conformance-" in str({**job.get("env", {}), **step.get("env", {})})
    ]


def _place(job):
    variables = {k: v for k, v in job.get("env", {}).items() if k in PLACE}
    return job["runs-on"], variables, job.get("strategy", {}).get("matrix", {}).get("runner")


def not_marked(root):
    """Workflows whose head does not say what of them was never run."""
    heads = {
        path.name: path.read_text(encoding="utf-8").partition("\nname:")[0]
        for path, _ in workflows(root)
    }
    return [name for name, head in heads.items() if "Not run yet" not in head]


def complaints(root):
    """What the schema of GitHub's workflows and shellcheck have to say."""
    files = [str(path) for path, _ in workflows(root)]
    commands = (
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files],
        [BIN / "shellcheck", *sorted((root / "ci").glob("*.sh"))],
    )
    done = [subprocess.run(c, capture_output=True, text=True, check=False) for c in commands]
    return [one.stdout + one.stderr for one in done if one.returncode]


RULES = (not_a_script, not_where_it_ran, options_of_pytest, not_marked, complaints)

RIGHT = """# Not run yet.
name: x
on: push
jobs:
  a:
    runs-on: macos-14
    steps:
      - run: bash ci/x.sh ${{ matrix.shard }}/4 "$MORE"
  b:
    needs: a
    runs-on: macos-14
    env:
      TIER: full
    steps:
      - run: bash ci/summary.sh 4
"""
SCRIPT = "#!/usr/bin/env bash\necho 1\n"
PLANTED = [
    (not_a_script, "bash ci/x.sh", "pip install x && bash ci/x.sh"),
    (not_a_script, "bash ci/x.sh", "bash ci/lost.sh"),
    (not_a_script, '"$MORE"', "; rm x"),
    (not_a_script, "matrix.shard", "github.event.pull_request.title"),
    (not_where_it_ran, "needs: a\n    runs-on: macos-14", "needs: a\n    runs-on: ubuntu-24.04"),
    (not_where_it_ran, "TIER: full", "CONFORMANCE_INSTALL: x"),
    (options_of_pytest, "TIER: full", "CONFORMANCE_OPTIONS: --conformance-tier=full"),
    (not_marked, "Not run yet", "Runs"),
    (complaints, "runs-on: macos-14", "runs_on: macos-14"),
    (complaints, "echo 1", "cd $1"),
]


def plant(root, before="", after=""):
    files = {".github/workflows/x.yml": RIGHT, "ci/x.sh": SCRIPT, "ci/summary.sh": SCRIPT}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(before, after) if before else text, encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule):
    assert len(workflows(ROOT)) == 2
    assert rule(ROOT) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_what_is_right_is_not_reported(rule, tmp_path):
    plant(tmp_path)
    assert rule(tmp_path) == []


@pytest.mark.parametrize(("rule", "before", "after"), PLANTED)
def test_a_breach_is_found(rule, before, after, tmp_path):
    plant(tmp_path, before, after)
    assert len(rule(tmp_path)) == 1


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (
            [],
            "run --tier quick --scenario repeat --scenario images_together --scenario "
            "mixed_modality --scenario quantized --scenario traffic --scenario traffic_options",
        ),
        (["--lf"], "run --lf"),
        (["--tier", "default"], "run --tier default"),
    ],
)
def test_the_main_job_chooses_cases_only_where_no_option_is_given(tmp_path, given, called):
    """With a stand-in for the command, which prints its arguments."""
    for name, text in {"ci/setup.sh": "", ".venv/bin/conformance": 'echo "$@"'}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    shutil.copy(ROOT / "ci/run.sh", tmp_path / "ci")
    command = ["bash", str(tmp_path / "ci/run.sh"), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == called


@pytest.fixture
def suite_cases(monkeypatch):
    """What ``ci/suite_cases.py`` defines."""
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    return runpy.run_path(str(ROOT / "ci/suite_cases.py"))


def test_the_suite_has_a_case_of_each_family_that_stands_for_a_kind(suite_cases):
    names = suite_cases["TARGET"].read_text().replace(suite_cases["ITEM"], "").split()
    held = {(case.engine, case.family) for case in map(CaseId.parse, names)}
    files = (ROOT / "conformance/plugins").glob("mlx_*/families/[a-z]*.json")
    quick = {f for f in files if json.loads(f.read_text())["conformance"].get("quick")}
    assert len(quick) > 20
    assert not {(f.parts[-3], f.stem) for f in quick} - held


def test_the_cheapest_cases_that_show_all_are_chosen(suite_cases):
    shows = {"a": {("x",)}, "b": {("x",), ("y",)}, "c": {("x",), ("y",)}, "d": {("z",)}}
    assert suite_cases["cheapest"](shows, {"a": 0.1, "b": 9.0, "c": 1.0, "d": 5.0}) == ["c", "d"]
