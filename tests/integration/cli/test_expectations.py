"""``--expectations`` and ``--no-expectations``."""

import pytest

ENTRY = """
package = "toy"

[[defect]]
id = "padding"
families = ["{family}"]
versions = ">=1,<2"
where = "toy/model.py:1"
why = "padding is not masked"
script = "docs/defects/toy.py"
verdicts = {{ ragged = "{verdict}" }}
"""


@pytest.fixture
def known(tmp_path):
    def write(family="broken", verdict="diverged"):
        folder = tmp_path / "known"
        folder.mkdir()
        (folder / "toy.toml").write_text(ENTRY.format(family=family, verdict=verdict))
        return "--expectations", folder

    return write


def test_a_known_defect_is_as_expected(toy_run, known):
    done = toy_run("--family", "broken", *known(), "--json", "r.jsonl")
    assert done.code == 0, done
    broken = next(r for r in done.results() if r["scenario"] == "ragged")
    assert (broken["verdict"], broken["expected"], broken["known"]) == ("diverged", True, "padding")
    assert "diverged         1  all as expected" in done.out


def test_a_rerun_is_judged_by_the_same_expectations(toy_run, known):
    option, folder = known(verdict="crash")
    done = toy_run("--family", "broken", option, folder)
    assert f"conformance show --expectations {folder} toy/broken/ragged/float32/0" in done.out


def test_an_entry_that_meets_no_case_of_a_whole_run_fails(toy_run, known):
    done = toy_run(*known(family="gone"), TOY_FAMILIES="calm")
    assert done.code == 1, done
    assert "'gone'" in done.out
    assert "other problem" in done.out


def test_a_part_of_the_cases_proves_nothing_about_entries(toy_run, known):
    done = toy_run("--family", "calm", *known(family="gone"), TOY_FAMILIES="calm tied")
    assert done.code == 0, done


def test_without_expectations_a_known_defect_fails(toy_run, known):
    done = toy_run("--family", "broken", *known(), "--no-expectations")
    assert done.code == 1


def test_a_malformed_file_is_one_sentence(toy_run, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "toy.toml").write_text("this is no toml")
    done = toy_run("--family", "calm", "--expectations", folder)
    assert done.code == 2
    assert done.err.startswith("conformance: ")
    assert "toy.toml" in done.err
    assert "Traceback" not in done.err
