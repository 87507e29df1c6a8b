"""The key of a stored oracle changes with all that the oracle depends on."""

import msgspec
import pytest
from miniatures.library import ToyLibrary, family

from conformance.core.family import Checkpoint
from conformance.reference import installed_files, surroundings
from conformance.reference import oracle_key as module
from conformance.reference.oracle_key import oracle_key


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A library's package ``forge`` and one of compiled code, in a small environment."""
    for name in ("site/forge/models", "site/anvil", "own"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "site/forge/__init__.py").write_text("")
    (tmp_path / "site/forge/models/one.py").write_text("x = 1\n")
    (tmp_path / "site/anvil/core.so").write_bytes(b"one")
    roots = {"own": tmp_path / "own", "installed0": tmp_path / "site"}
    monkeypatch.setattr(surroundings, "_roots", lambda: iter(roots.items()))
    monkeypatch.setattr(surroundings, "package_folder", lambda name: tmp_path / "site" / name)
    known = installed_files.Digests(tmp_path / "digests.json")
    monkeypatch.setattr(installed_files.Digests, "here", lambda: known)
    return tmp_path / "site" / "forge"


class Forge(ToyLibrary):
    """A toy library whose models are of a package."""

    package = "forge"


@pytest.fixture
def key(monkeypatch):
    """The key that another process would make now."""

    def make(library=None, of=None, dtype="float32", seed=0):
        now = surroundings.Environment()
        monkeypatch.setattr(surroundings.Environment, "first", lambda: now)
        return oracle_key(library or Forge(), of or family(), dtype, seed)

    return make


def test_the_same_has_the_same_key(package, key):
    assert key() == key()


def test_a_file_of_the_library_s_package_changes_it(package, key):
    before = key()
    (package / "models" / "one.py").write_text("x = 2\n")
    changed = key()
    assert changed != before
    (package / "models" / "one.py").rename(package / "models" / "two.py")
    assert key() not in (before, changed)


@pytest.mark.parametrize("folder", ["core", "backend", "reference"])
def test_what_decodes_a_request_changes_it_and_a_check_does_not(package, key, tmp_path, folder):
    before = key()
    (tmp_path / "own/checks").mkdir()
    (tmp_path / "own/checks/leak.py").write_text("x = 1")
    assert key() == before
    (tmp_path / "own" / folder).mkdir()
    (tmp_path / "own" / folder / "one.py").write_text("x = 1")
    assert key() != before


def test_an_edit_since_this_process_began_leaves_nothing_to_store(package, monkeypatch):
    now = surroundings.Environment()
    monkeypatch.setattr(surroundings.Environment, "first", lambda: now)
    monkeypatch.setattr(module, "LIBRARIES", ("forge",))
    assert oracle_key(Forge(), family(), "float32", 0)
    (package / "models/one.py").write_text("x = 2\n")
    assert oracle_key(Forge(), family(), "float32", 0) is None


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"seed": 1}])
def test_dtype_and_seed_change_it(package, key, other):
    assert key(**other) != key()


def test_config_and_recipe_change_it(package, key):
    plain = family()
    config = msgspec.structs.replace(plain, config={**plain.config, "rope_theta": 1.0})
    facts = msgspec.structs.replace(plain.facts, seed=1)
    recipe = msgspec.structs.replace(plain, facts=facts)
    assert len({key(), key(of=config), key(of=recipe)}) == 3


def test_versions_and_device_change_it(package, key):
    newer = type("Forge", (Forge,), {"versions": lambda self: {"toy": "2"}})
    elsewhere = type("Forge", (Forge,), {"device": lambda self: "slide rule"})
    assert len({key(), key(newer()), key(elsewhere())}) == 3


def test_a_rebuilt_binary_changes_it(package, key):
    before = key()
    (package.parent / "anvil/core.so").write_bytes(b"another")
    assert key() != before


def test_real_checkpoints_and_libraries_without_a_package_have_none(package, key):
    real = msgspec.structs.replace(family(), checkpoint=Checkpoint("somewhere"))
    assert key(of=real) is None
    assert key(ToyLibrary()) is None
