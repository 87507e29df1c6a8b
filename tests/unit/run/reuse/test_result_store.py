"""A kept result is given back only while all that it hangs on is the same."""

import os
import time

import pytest
from results_by_hand import make_result

from conformance.core.content_keys import digest
from conformance.core.verdict import CaseId
from conformance.reference import installed_files
from conformance.reference.installed_files import Digests
from conformance.run.reuse import result_store
from conformance.run.reuse.result_store import ResultStore

CASE = "mlx_lm/llama/ragged/float32/0"
ID = CaseId.parse(CASE)


class Environment:
    """One whose modules are the test's; what it is called can change."""

    whole = "here"

    def __init__(self):
        self.edited = set()

    def modules(self, package):
        return f"all of {package}"

    def unchanged_modules(self, package):
        return package not in self.edited

    def unchanged(self, path, seen=None):
        return path.name not in self.edited


@pytest.fixture
def here():
    return Environment()


@pytest.fixture
def files(monkeypatch, tmp_path):
    """The files of modules as they are now; a test changes them."""
    found = {}
    for name in ("lib.llama", "lib.cache"):
        found[name] = tmp_path / "lib" / name
        found[name].parent.mkdir(exist_ok=True)
        found[name].write_text("1")
    monkeypatch.setattr(result_store, "file_of", found.get)
    return found


@pytest.fixture
def opened(tmp_path, here):
    """The store as each run makes it."""
    return lambda environment=here, plugins=(): ResultStore(
        tmp_path / "results", environment, plugins
    )


@pytest.fixture
def store(opened, files):
    add(opened(), files)
    return opened()


def add(store, files, case=CASE, digest="family", tier="full"):
    result = make_result(case)
    name = CaseId.parse(case)
    store.add(
        name.engine,
        name.family,
        family_digest=digest,
        modules=dict.fromkeys(files, "module"),
        results={tier: [result]},
    )


def test_an_unchanged_case_is_known(store):
    assert store.known(ID, "family", "full") == make_result(CASE)
    assert store.hangs_on(ID) == {"lib.llama", "lib.cache"}


def test_a_file_is_read_once_for_all_families(opened, files, tmp_path, monkeypatch):
    """CUDA's libraries may be outside of what is installed: gigabytes, for each family anew."""
    digests, read = Digests(tmp_path / "digests.json"), []
    monkeypatch.setattr(Digests, "here", lambda: digests)
    monkeypatch.setattr(
        installed_files, "file_digest", lambda path: read.append(path.name) or "content"
    )
    for path in files.values():
        os.utime(path, (1, 1))
    time.sleep(1.1)  # what has just been written is read again
    store = opened()
    for family in ("llama", "gemma", "phi"):
        add(store, files, case=f"mlx_lm/{family}/ragged/float32/0")
    assert opened().known(ID, "family", "full") == make_result(CASE)
    assert sorted(read) == ["lib.cache", "lib.llama"]


@pytest.mark.parametrize("name", ["lib.llama", "lib.cache"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_changed_or_missing_module_forgets_it(store, files, name, gone):
    if gone:
        files[name].unlink()
    else:
        files[name].write_text("2")
    assert store.known(ID, "family", "full") is None


@pytest.mark.parametrize(
    ("case", "family", "tier"),
    [
        (CASE, "another", "full"),
        (CASE, "family", "quick"),
        ("mlx_lm/llama/ragged/float16/0", "family", "full"),
        ("mlx_lm/llama/ragged/float32/1", "family", "full"),
        ("mlx_lm/llama/wide/float32/0", "family", "full"),
        ("other/llama/ragged/float32/0", "family", "full"),
        ("mlx_lm/gemma/ragged/float32/0", "family", "full"),
    ],
)
def test_another_case_family_file_or_tier_is_not_known(store, case, family, tier):
    assert store.known(CaseId.parse(case), family, tier) is None


def test_another_environment_does_not_know_it(store, opened, here):
    here.whole = "upgraded"
    assert opened().known(ID, "family", "full") is None
    here.whole = "here"
    assert opened().known(ID, "family", "full")


def test_nothing_is_known_or_kept_of_an_environment_that_is_not_known(opened, here, files):
    here.whole = ""
    add(opened(), files)
    assert opened().known(ID, "family", "full") is None
    assert "GPU" in opened().unused
    here.whole = "here"
    assert opened().unused == ""


@pytest.mark.parametrize("form", ["module", "file"])
def test_a_plugin_that_the_user_names_counts_with_its_text(
    opened, files, tmp_path, monkeypatch, form
):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a_plugin.py"
    path.write_text("x = 1")
    given = ("a_plugin",) if form == "module" else (str(path),)
    assert opened(plugins=given).known(ID, "family", "full") is None
    add(opened(plugins=given), files)
    assert opened(plugins=given).known(ID, "family", "full")
    path.write_text("x = 2")
    assert opened(plugins=given).known(ID, "family", "full") is None


def test_the_key_changes_with_each_part(store, opened, files, here):
    keys = {store.key(ID, "family", "full"), store.key(ID, "another", "full")}
    keys.add(store.key(ID, "family", "quick"))
    files["lib.cache"].write_text("2")
    keys.add(opened().key(ID, "family", "full"))
    assert len(keys) == 4
    assert store.key(CaseId.parse("mlx_lm/gemma/ragged/float32/0"), "family", "full") == ""


def test_results_of_two_runs_are_joined(store, opened, files):
    other = "mlx_lm/llama/wide/float32/0"
    add(store, files, other)
    assert opened().known(ID, "family", "full")
    assert opened().known(CaseId.parse(other), "family", "full")


def test_results_from_before_a_change_are_dropped_by_the_next_run(store, opened, files):
    files["lib.llama"].write_text("2")
    other = "mlx_lm/llama/wide/float32/0"
    add(opened(), files, other)
    assert opened().known(ID, "family", "full") is None
    assert opened().known(CaseId.parse(other), "family", "full")


@pytest.mark.parametrize("name", ["lib.llama", "mlx_lm.*"])
def test_what_was_edited_during_the_run_is_never_known(opened, files, here, name, tmp_path):
    here.edited = {"lib.llama", "mlx_lm"}
    add(opened(), [name])
    assert opened().known(ID, "family", "full") is None
    here.edited = set()
    add(opened(), [name])
    assert opened().known(ID, "family", "full")


def test_a_file_that_was_not_there_counts_as_long_as_it_is_not(opened, tmp_path):
    data = tmp_path / "data"

    def keep():
        opened().add(
            "mlx_lm",
            "llama",
            family_digest="family",
            modules={str(data): "absent"},
            results={"full": [make_result(CASE)]},
        )

    keep()
    assert opened().known(ID, "family", "full")
    data.write_text("there now")
    assert opened().known(ID, "family", "full") is None
    keep()
    assert opened().known(ID, "family", "full") is None, "it was made during the run"


def test_a_damaged_or_edited_file_is_as_none(store, opened, tmp_path):
    (path,) = tmp_path.rglob("llama.json")
    whole = path.read_bytes()
    for data in (whole[:-9], whole.replace(b"exact", b"tied!")):
        path.write_bytes(data)
        assert opened().known(ID, "family", "full") is None
        assert not path.exists()


def test_the_oldest_environments_are_dropped(opened, here, files, tmp_path):
    for number in range(8):
        here.whole = f"e{number}"
        add(opened(), files)
    assert len(list((tmp_path / "results").iterdir())) == 6
    assert (tmp_path / "results" / digest([b"e7"])).is_dir()
