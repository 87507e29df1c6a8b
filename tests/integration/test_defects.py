"""Each entry of expectations/ has a script that shows its defect, by hand or from `repro`.

By day those whose scripts take every branch of the templates, and one by hand of each library; all
others are nightly.
"""

import ast
import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

import msgspec
import pytest
from forked import run_python

from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import Defect, load_expectations
from conformance.core.errors import NoScriptError
from conformance.core.processes import Done
from conformance.core.upstream_functions import code_lines, places, source_text
from conformance.core.verdict import CaseId, Verdict
from conformance.run.registry import build_registry
from conformance.scenarios import LADDER
from conformance.scenarios.served import SERVED_SCENARIOS
from conformance.tools.explore.corpus import CORPUS
from conformance.tools.repro import trying
from conformance.tools.repro.code import WIDTH
from conformance.tools.repro.known_scripts import found_before, written
from conformance.tools.repro.search import gathered
from conformance.tools.repro.template_values import template_values

ROOT = Path(__file__).parents[2]
DEFECTS = load_expectations().defects
BY_HAND = [entry for entry in DEFECTS if entry.by_hand]
WRITTEN = [entry for entry in DEFECTS if not entry.script]
FOUND = found_before()
# Entries whose scripts are written and run by day: each takes a branch of the templates that none
# before it takes. A nightly test says which entry to add if a new one takes one more.
WRITTEN_BY_DAY = (
    "generate-step-names-inputs",
    "batch-offset-never-computed",
    "rope-deltas-of-padding",
    "plamo3-window-width",
    "insert-lists-of-other-lengths",
    "batch-generator-sizes",
    "penalty-of-last-token",
    "mllama-tiles-of-padding",
    "arrays-cache-extract-view",
    "bounded-cache-keep",
    "finished-caches-hold-the-batch",
    "requests-without-work",
    "gemma2-mask-of-kv-heads",
    "kv-policy-alone-and-batched",
    "turboquant-start-of-longest-prompt",
    "llama4-chunks-of-columns-left-alone",
    "rotating-mask-while-rotated-in-prefill",
    "joint-images-do-not-fit",
)
BY_HAND_BY_DAY = (
    "docs/defects/mlx_lm/samplers_refused_while_traced.py",
    "docs/defects/mlx_vlm/cache_list_last_layer.py",
)
# What the templates are rendered with that decides nothing in them, but is put in.
PUT_IN = {"text", "imports", "config", "weights", "requests", "noise", "bound", "seed", "vocab"}
PUT_IN |= {"towers", "expected", "left", "right", "dtype"}
# Of which each value has a branch.
KINDS = {"library", "oracle", "weighed", "alone"}
# With what they themselves require, which whoever has them has.
LIBRARIES = {"mlx", "mlx_lm", "mlx_vlm", "transformers", "tokenizers", "PIL"}
PLACE = re.compile(r"(?P<package>\w+)/(?P<path>[\w/-]+\.py):(?P<line>\d+)")


def unpaired(root, defects):
    """Entries whose script is not there, and scripts that no entry names."""
    there = {str(path.relative_to(root)) for path in (root / "docs" / "defects").rglob("*.py")}
    # Those of cache classes have entries of their own: tests/integration/cli/test_caches.py.
    apart = ("docs/defects/caches/", "docs/defects/functions/")  # entries in files of their own
    apart += ("docs/defects/mlx/",)  # of mlx itself: docs/gpu.md names them, an entry may
    there = {name for name in there if not name.startswith(apart)}
    by_hand = [entry for entry in defects if entry.by_hand]
    named = {entry.script for entry in by_hand}
    missing = [f"{e.id}: there is no {e.script}" for e in by_hand if not (root / e.script).exists()]
    return missing + [f"{script}: no entry names it" for script in sorted(there - named)]


def wrong_mends(mends, defects):
    """Mends of no entry, and entries about a device that no test plays on which have none."""
    ids = {entry.id for entry in defects}
    mended = {name for mend in mends for name in mend.defects}
    elsewhere = {entry.id for entry in defects if entry.device.startswith("gpu")}
    return sorted((mended - ids) | (elsewhere - mended))


def foreign_imports(text):
    """Packages that the script imports though an upstream reader need not have them."""
    tree = ast.parse(text)
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return sorted({name.split(".")[0] for name in names} - LIBRARIES - sys.stdlib_module_names)


def place_problem(entry):
    """What is wrong with the places that the entry names, in the installed release."""
    found = places(entry.where)
    if not found:
        return f"{entry.where!r} names no place such as mlx_lm.models.llama:Attention.__call__+3"
    for place in found:
        lines = code_lines(source_text(place.file) or "").get(place.function, ())
        if place.line >= len(lines):
            return f"'{place}' is not in the installed release"
    return ""


def is_active(entry):
    return entry.in_release(importlib.metadata.version(entry.package))


def run(script):
    return run_python([script], cwd=ROOT, env=dict(os.environ), timeout=240)


def script_problem(script, *, active):
    """What is wrong with how the script ends; empty if nothing. Skips what cannot run here."""
    done = run(script)
    said = (done.stdout + done.stderr).strip()
    if done.returncode == 2:
        pytest.skip(f"cannot run here: {said}")
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        return f"it failed, exit code {done.returncode}: {said}"
    if not done.stdout.strip():
        return "it prints no evidence"
    if active and done.returncode == 0:
        return f"the defect does not show, though the entry is active: {said}"
    if not active and done.returncode == 1:
        return f"the defect shows, though the entry is for other releases: {said}"
    return ""


def written_problem(setup, entry, made, *, active):
    """What is wrong with the script that the command writes for the entry; empty if nothing."""
    try:
        text, ended = written(setup.session, entry, made, python=sys.executable)
    except NoScriptError as error:
        return str(error) if active else ""
    if not active:
        return f"the defect shows, though the entry is for other releases: {ended.output}"
    if foreign := foreign_imports(text):
        return f"it imports {foreign}"
    said = "".join((ast.get_docstring(ast.parse(text)) or "").split())
    unsaid = [place[0] for place in PLACE.finditer(entry.at) if place[0] not in said]
    return f"its docstring does not name {unsaid}" if unsaid else ""


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    """Scripts that are written are tried in processes that need not import the library."""

    def call(command, *, seconds, folder, environment):
        assert command[1:-1] == ["-P", "-s"]
        safe = {**environment, "PYTHONSAFEPATH": "1"}
        done = run_python(command[-1:], cwd=folder, env=safe, timeout=seconds)
        return Done(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(trying, "run_to_end", call)


@pytest.fixture(scope="module")
def setup():
    return make_setup(Settings(engines=("*",)))


def by_day(name, day):
    """The mark of a test that only the nightly run has."""
    return () if name in day else pytest.mark.nightly


def branches(setup, entry, made):
    """What the templates branch on for the entry: names of values, and whether or which."""
    found = gathered(setup.session, CaseId.parse(made.case), made.reduction, entry)
    values = {k: v for k, v in template_values(found, WIDTH).items() if k not in PUT_IN}
    engine = made.case.split("/")[0]
    return {(engine, k, str(v if k in KINDS else bool(v))) for k, v in values.items()}


def test_each_script_has_an_entry_and_each_entry_a_script():
    assert unpaired(ROOT, DEFECTS) == []


def test_entries_name_scenarios_that_there_are():
    known = {scenario.name for scenario in (*LADDER, CORPUS, *SERVED_SCENARIOS)}
    assert {name for entry in DEFECTS for name in (*entry.verdicts, *entry.other_seeds)} <= known


def test_what_shows_with_other_seeds_alone_is_proven_by_a_mend(setup):
    named = [entry.id for entry in DEFECTS if entry.other_seeds]
    assert named
    assert [name for name in named if setup.registry.mend_of(name) is None] == []


def test_scripts_by_hand_need_nothing_but_the_library():
    texts = {e.script: (ROOT / e.script).read_text(encoding="utf-8") for e in BY_HAND}
    found = {script: foreign_imports(text) for script, text in texts.items()}
    assert {script: names for script, names in found.items() if names} == {}


def test_entries_point_at_lines_of_the_installed_release():
    found = {entry.id: place_problem(entry) for entry in DEFECTS if is_active(entry)}
    assert {name: problem for name, problem in found.items() if problem} == {}


def test_each_mend_is_of_an_entry_and_what_only_a_gpu_shows_has_one():
    mends = build_registry().mends.values()
    assert wrong_mends(mends, DEFECTS) == []
    gone = [entry for entry in DEFECTS if entry.id != "attention-without-rows-on-cuda-zaya1"]
    assert wrong_mends(mends, gone) == ["attention-without-rows-on-cuda-zaya1"]
    left = [mend for mend in mends if "youtu-vl-cumsum-of-one-element" not in mend.defects]
    assert wrong_mends(left, DEFECTS) == ["youtu-vl-cumsum-of-one-element"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, marks=by_day(script, BY_HAND_BY_DAY))
        for script in sorted({entry.script for entry in BY_HAND})
    ],
)
def test_the_script_shows_the_defect_where_an_entry_says_so(script):
    active = any(is_active(entry) for entry in BY_HAND if entry.script == script)
    assert script_problem(ROOT / script, active=active) == ""


def test_what_is_written_has_been_found_before():
    assert [e.id for e in WRITTEN if e.id not in FOUND or FOUND[e.id].reduction is None] == []


# A family's models stay loaded from one entry to the next.
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.id, marks=by_day(entry.id, WRITTEN_BY_DAY))
        for entry in sorted(WRITTEN, key=lambda e: FOUND[e.id].case)
    ],
)
def test_the_script_that_is_written_shows_the_defect(setup, entry):
    assert written_problem(setup, entry, FOUND[entry.id], active=is_active(entry)) == ""


@pytest.mark.nightly
def test_the_scripts_of_the_day_take_every_branch_that_any_script_takes(setup):
    taken = {entry.id: branches(setup, entry, FOUND[entry.id]) for entry in WRITTEN}
    by_those = set().union(*(taken[name] for name in WRITTEN_BY_DAY))
    assert {name: sorted(of - by_those) for name, of in taken.items() if of - by_those} == {}


def test_what_is_tried_by_day_is_there():
    assert set(WRITTEN_BY_DAY) <= {entry.id for entry in WRITTEN if is_active(entry)}
    assert set(BY_HAND_BY_DAY) <= {entry.script for entry in BY_HAND if is_active(entry)}


# The rules themselves, on planted scripts and entries ---------------------------------------------


def defect(**changes):
    fields = {
        "id": "planted",
        "engines": ("mlx_lm",),
        "families": ("llama",),
        "package": "mlx-lm",
        "versions": ">0",
        "where": "mlx_lm.models.llama:Attention.__call__",
        "why": "it is",
        "script": "docs/defects/mlx_lm/planted.py",
        "verdicts": {"ragged": Verdict.DRIFT},
    }
    return Defect(**(fields | changes))


@pytest.fixture
def script(tmp_path):
    def write(text="print('evidence')\nraise SystemExit(1)\n"):
        path = tmp_path / "docs" / "defects" / "mlx_lm" / "planted.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_pair_is_reported_from_a_lone_entry_and_a_lone_script(script, tmp_path):
    assert unpaired(tmp_path, [defect()]) == ["planted: there is no docs/defects/mlx_lm/planted.py"]
    script()
    assert unpaired(tmp_path, []) == ["docs/defects/mlx_lm/planted.py: no entry names it"]
    assert unpaired(tmp_path, [defect()]) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import sys\nimport mlx.core as mx\nfrom mlx_lm.models import cache\n", []),
        ("import numpy as np\n", ["numpy"]),
        ("def f():\n    from conformance import weights\n", ["conformance"]),
        ("from . import helper\n", [""]),
    ],
)
def test_foreign_imports_are_found(text, found):
    assert foreign_imports(text) == found


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("mlx_lm.models.llama:Attention.__call__", ""),
        ("the cache, mlx_lm.models.llama:Attention and mlx_lm.generate:generate_step+2", ""),
        ("mlx_lm.models.nemotron-nas:Attention.__call__", ""),
        ("somewhere", "names no place"),
        ("mlx_lm.models.lama:Attention", "is not in the installed release"),
        ("mlx_lm.models.llama:Attention.__call__+999", "is not in the installed release"),
        ("mlx_lm.models.llama:Attention.gone", "is not in the installed release"),
        ("mlx_lm/models/llama.py:1", "names no place"),
    ],
)
def test_a_place_that_is_not_there_is_reported(where, problem):
    found = place_problem(defect(where=where))
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize(
    ("text", "active", "problem"),
    [
        ("print('evidence')\nraise SystemExit(1)", True, ""),
        ("print('evidence')", False, ""),
        ("print('evidence')", True, "the defect does not show"),
        ("print('evidence')\nraise SystemExit(1)", False, "the defect shows"),
        ("raise SystemExit(1)", True, "prints no evidence"),
        ("print('evidence')\nraise ValueError('boom')", True, "it failed"),
        ("print('evidence')\nraise SystemExit(3)", True, "it failed"),
    ],
)
def test_how_a_script_ends_is_judged(script, text, active, problem):
    found = script_problem(script(text), active=active)
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_written_script_that_does_not_show_the_defect_is_reported(setup):
    """Prompts of one length have no padding, which this defect needs."""
    entry = next(entry for entry in WRITTEN if entry.id == "mamba-padded-state")
    made = FOUND[entry.id]
    assert written_problem(setup, entry, made, active=True) == ""
    assert "though the entry is for other releases" in written_problem(
        setup, entry, made, active=False
    )
    elsewhere = msgspec.structs.replace(entry, where="mlx_lm.models.mamba:Mamba.__call__")
    ragged = made.reduction.schedule
    (arrival,) = ragged.arrivals
    rows = [msgspec.structs.replace(row, prompt=(5, 6, 7)) for row in arrival.requests]
    even = msgspec.structs.replace(
        ragged, arrivals=(msgspec.structs.replace(arrival, requests=tuple(rows)),)
    )
    right = msgspec.structs.replace(
        made, reduction=msgspec.structs.replace(made.reduction, schedule=even)
    )
    assert "does not show it" in written_problem(setup, elsewhere, right, active=True)
    assert written_problem(setup, elsewhere, right, active=False) == ""
