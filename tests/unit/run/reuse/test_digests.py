"""The hash of what a case hangs on beside modules changes with each of its parts."""

import pytest

from conformance.core.family import Facts, Family
from conformance.run.reuse import digests
from conformance.run.reuse.digests import digest, environment_digest, family_digest, file_digest


@pytest.fixture(autouse=True)
def _fresh():
    environment_digest.cache_clear()
    file_digest.cache_clear()
    yield
    environment_digest.cache_clear()
    file_digest.cache_clear()


def again():
    environment_digest.cache_clear()
    file_digest.cache_clear()
    return environment_digest()


def test_it_is_the_same_where_nothing_changed():
    assert environment_digest() == again()


def test_where_one_part_ends_and_the_next_begins_counts():
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])


@pytest.mark.parametrize("name", ["MLX_ENABLE_TF32", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"])
def test_a_variable_that_mlx_goes_by_counts(monkeypatch, name):
    before = environment_digest()
    monkeypatch.setenv(name, "7")
    assert again() != before


def test_another_variable_does_not(monkeypatch):
    before = environment_digest()
    monkeypatch.setenv("EDITOR", "ed")
    assert again() == before


def test_an_installed_package_counts_by_its_version(monkeypatch, tmp_path):
    before = environment_digest()
    (tmp_path / "transformers-99.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert again() != before


@pytest.mark.parametrize(
    ("package", "file", "counts"),
    [
        ("mlx.core", "lib/libmlx.so", True),
        ("mlx.core", "notes.txt", False),
        ("mlx_lm", "kernels/a.metal", True),
        ("mlx_lm", "models/llama.py", False),
        ("mlx_vlm", "config.json", True),
    ],
)
def test_files_of_the_libraries_that_are_no_modules_count(
    monkeypatch, tmp_path, package, file, counts
):
    right = digests._root
    monkeypatch.setattr(digests, "_root", lambda m: tmp_path if m == package else right(m))
    before = again()
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed")
    assert (again() != before) == counts


def test_a_file_of_this_package_counts_but_for_those_of_families(monkeypatch, tmp_path):
    (tmp_path / "plugins/families").mkdir(parents=True)
    monkeypatch.setattr(digests.conformance, "__file__", str(tmp_path / "__init__.py"))
    before = again()
    (tmp_path / "plugins/families/llama.json").write_text("{}")
    assert again() == before
    (tmp_path / "checks.py").write_text("pass")
    assert again() != before


def test_the_machine_counts(monkeypatch):
    before = environment_digest()
    monkeypatch.setattr(digests, "_processor", lambda: "another one")
    assert again() != before


def test_a_family_counts_with_its_config_its_facts_and_its_model_file(tmp_path):
    (tmp_path / "model.py").write_text("x = 1")

    def of(**changes):
        file_digest.cache_clear()
        given = {"facts": Facts(model_file="model.py"), "config": {"vocab_size": 8}} | changes
        return family_digest(Family("llama", path=str(tmp_path / "llama.json"), **given))

    before = of()
    assert of() == before
    assert of(config={"vocab_size": 9}) != before
    assert of(facts=Facts(model_file="model.py", window=4)) != before
    (tmp_path / "model.py").write_text("x = 2")
    assert of() != before


def test_a_file_that_cannot_be_read_is_gone(tmp_path):
    assert file_digest(tmp_path / "nothing.py") == "gone"


def test_a_package_counts_with_each_of_its_modules_and_those_that_are_added(monkeypatch, tmp_path):
    monkeypatch.setattr(digests, "_root", lambda module: tmp_path)
    found = set()
    for name in ("a.py", "deep/b.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
        digests.package_digest.cache_clear()
        found.add(digests.package_digest("lib"))
    digests.package_digest.cache_clear()
    assert len(found) == 2, "a text that is no module does not count here"
