"""A version of a library that no known defect names, as a checkout; families with known defects."""

import json
import shutil

import pytest
from library_checkouts import change, make_checkout

from conformance.plugins import mlx_lm

RUN = ("run", "--engine", "mlx_lm", "--tier", "default", "--dtype", "float32")
RUN += ("--jobs", "1", "--json", "r.jsonl")
FAMILIES = ("--family", "afm7", "--family", "mamba2")
SCENARIOS = ("--scenario", "ragged", "--scenario", "held")
HELD = "arrays-cache-extract-view, arrays-cache-padding-never-computed"
EXTRACT = "    def extract(self, idx):\n"


@pytest.fixture
def checkout(tmp_path):
    folder = make_checkout(tmp_path / "mlx-lm")
    change(folder, "mlx_lm/_version.py", "0.32.2", "0.33.0.dev0")
    return folder


@pytest.fixture
def environment(environment):
    return {k: v for k, v in environment.items() if k != "PYTHONPATH"}


def known(done):
    return {f"{r['family']}/{r['scenario']}": r["known"] for r in done.results() if r["known"]}


def test_unchanged_code_has_no_new_failure(conformance, checkout):
    done = conformance(*RUN, *FAMILIES, *SCENARIOS, "--library-path", checkout)
    assert done.code == 0, done
    assert done.results()[0]["versions"]["mlx-lm"] == "0.33.0.dev0"
    found = known(done)
    assert found["afm7/ragged"] == "afm7-kv-reuse-offset"
    assert found["mamba2/held"] == HELD


def test_a_defect_of_a_function_that_changed_is_new(conformance, checkout):
    file = checkout / "mlx_lm/models/cache.py"
    before, found, arrays = file.read_text().partition("class ArraysCache(")
    assert EXTRACT in arrays
    file.write_text(
        before + found + arrays.replace(EXTRACT, f"{EXTRACT}        idx = int(idx)\n", 1)
    )
    few = ("--family", "mamba2", "--scenario", "held", "--scenario", "invalid")
    done = conformance(*RUN, *few, "--library-path", checkout)
    assert done.code == 1, done
    judged = {result["scenario"]: result["expected"] for result in done.results()}
    assert judged == {"held": False, "invalid": True}
    said = "mamba2: 1 case fails, at `held`: known as arrays-cache-extract-view, its function chang"
    assert said in done.out


def test_a_new_family_with_the_trait_is_judged_as_known(conformance, tmp_path):
    """A copy of a family under another name, which no entry names."""
    families = mlx_lm.__path__[0] + "/families/"
    shutil.copy(f"{families}mamba2.json", tmp_path / "newcomer.json")
    own = json.loads((tmp_path / "newcomer.json").read_text())
    own["conformance"]["module"] = "mamba2"
    (tmp_path / "newcomer.json").write_text(json.dumps(own))
    new = ("--family-file", "newcomer.json", "--family", "newcomer", "--scenario", "held")
    done = conformance(*RUN, *new)
    assert done.code == 0, done
    assert known(done) == {"newcomer/held": HELD}
    assert "cache:ArraysCache" in done.results()[0]["traits"]
