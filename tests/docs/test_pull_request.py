"""The page for a pull request, followed from its first command to its last."""

import shlex

import pytest
from docs.documented import ROOT, shown
from docs.test_commands import call
from library_checkouts import make_checkout, plant_mistake

PAGE = ROOT / "docs" / "pull-request.md"
FAILED = "mlx_lm/llama/ragged/float32/0"


@pytest.mark.nightly
def test_the_page_finds_a_mistake_of_a_branch(tmp_path):
    make_checkout(tmp_path / "path/to/mlx-lm")
    base, branch, explain, repro = map(shlex.split, shown(PAGE))
    assert "--scenario" not in base + branch, "the test makes it short"
    short = ("--scenario", "ragged")

    done = call([*base, *short], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    same = call([*branch, *short], tmp_path)
    assert same.returncode == 0, same.stdout + same.stderr

    plant_mistake(tmp_path / "path/to/mlx-lm")
    worse = call([*branch, *short], tmp_path)
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert "1 of 1 case worse than in BASE.jsonl" in worse.stdout
    assert "(dirty, " in worse.stdout

    assert (explain[-1], repro[-1]) == ("CASE_ID", "CASE_ID")
    found = call([*explain[:-1], FAILED], tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "mlx_lm/B6.mask-without-pad" in found.stdout, "it is a mistake of that class"
    script = call([*repro[:-1], FAILED], tmp_path)
    assert script.returncode == 0, script.stdout + script.stderr
    assert "WRONG" in script.stderr
    assert "Made with" in script.stdout
