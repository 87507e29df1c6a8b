"""A kept result is given back only while all that it hangs on is the same."""

import pytest
from results_by_hand import make_result

from conformance.core.verdict import CaseId
from conformance.run.reuse import result_store
from conformance.run.reuse.result_store import ResultStore, module_digest

CASE = "mlx_lm/llama/ragged/float32/0"
ID = CaseId.parse(CASE)


@pytest.fixture
def files(monkeypatch):
    """The digests of modules as they are now; a test changes them."""
    now = {"lib.llama": "1", "lib.cache": "1"}
    monkeypatch.setattr(result_store, "module_digest", lambda name: now.get(name, "gone"))
    return now


@pytest.fixture
def store(tmp_path, files):
    kept = ResultStore(tmp_path / "results")
    add(kept, files)
    return ResultStore(tmp_path / "results")


def add(store, files, case=CASE, digest="family", tier="full"):
    result = make_result(case)
    name = CaseId.parse(case)
    store.add(
        name.engine, name.family, family_digest=digest, modules=files, results={tier: [result]}
    )


def test_an_unchanged_case_is_known(store):
    assert store.known(ID, "family", "full") == make_result(CASE)
    assert store.hangs_on(ID) == {"lib.llama", "lib.cache"}


@pytest.mark.parametrize("name", ["lib.llama", "lib.cache"])
def test_a_changed_module_forgets_it(store, files, name):
    files[name] = "2"
    assert store.known(ID, "family", "full") is None


def test_a_module_that_is_gone_forgets_it(store, files):
    del files["lib.cache"]
    assert store.known(ID, "family", "full") is None


def test_another_family_file_forgets_it(store):
    assert store.known(ID, "another", "full") is None


def test_another_tier_does_not_know_it(store):
    assert store.known(ID, "family", "quick") is None


@pytest.mark.parametrize(
    "case",
    [
        "mlx_lm/llama/ragged/float16/0",
        "mlx_lm/llama/ragged/float32/1",
        "mlx_lm/llama/wide/float32/0",
        "other/llama/ragged/float32/0",
        "mlx_lm/gemma/ragged/float32/0",
    ],
)
def test_another_dtype_seed_scenario_engine_or_family_is_not_known(store, case):
    assert store.known(CaseId.parse(case), "family", "full") is None


def test_another_environment_does_not_know_it(store, monkeypatch):
    monkeypatch.setattr(result_store, "environment_digest", lambda: "upgraded")
    assert ResultStore(store.folder).known(ID, "family", "full") is None


def test_the_key_changes_with_each_part(store, files):
    keys = {store.key(ID, "family", "full"), store.key(ID, "another", "full")}
    keys.add(store.key(ID, "family", "quick"))
    files["lib.cache"] = "2"
    keys.add(ResultStore(store.folder).key(ID, "family", "full"))
    assert len(keys) == 4
    assert store.key(CaseId.parse("mlx_lm/gemma/ragged/float32/0"), "family", "full") == ""


def test_results_of_two_runs_are_joined(store, files, tmp_path):
    other = "mlx_lm/llama/wide/float32/0"
    add(store, files, other)
    again = ResultStore(store.folder)
    assert again.known(ID, "family", "full")
    assert again.known(CaseId.parse(other), "family", "full")


def test_results_from_before_a_change_are_dropped_by_the_next_run(store, files):
    files["lib.llama"] = "2"
    other = "mlx_lm/llama/wide/float32/0"
    add(store, files, other)
    files["lib.llama"] = "2"
    again = ResultStore(store.folder)
    assert again.known(ID, "family", "full") is None
    assert again.known(CaseId.parse(other), "family", "full")


def test_a_damaged_file_is_as_none(store):
    (path,) = store.folder.rglob("llama.json")
    path.write_bytes(path.read_bytes()[:-9])
    assert ResultStore(store.folder).known(ID, "family", "full") is None


def test_the_oldest_environments_are_dropped(store, files, monkeypatch):
    for number in range(8):
        monkeypatch.setattr(result_store, "environment_digest", lambda n=number: f"e{n}")
        add(ResultStore(store.folder), files)
    assert len(list(store.folder.iterdir())) == 6
    assert (store.folder / "e7").is_dir()


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path, files):
    (tmp_path / "results").write_text("a file")
    add(ResultStore(tmp_path / "results"), files)
    assert ResultStore(tmp_path / "results").known(ID, "family", "full") is None


def test_a_module_of_the_users_own_is_named_by_its_path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("x = 1")
    assert module_digest(str(path)) not in ("gone", module_digest("no_such_module"))
