"""The key of a stored oracle changes with all that the oracle depends on."""

import sys

import msgspec
import pytest
from miniatures.library import ToyLibrary, family

from conformance.core.family import Checkpoint
from conformance.reference import oracle_key as module
from conformance.reference.oracle_key import oracle_key


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A library's package ``forge`` and one of compiled code; the hashes are of this test alone."""
    for name in ("forge", "forge/models", "anvil"):
        (tmp_path / name).mkdir()
    (tmp_path / "forge" / "__init__.py").write_text("")
    (tmp_path / "forge" / "models" / "one.py").write_text("x = 1\n")
    (tmp_path / "forge" / "read.me").write_text("no code\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "forge"
    sys.modules.pop("forge", None)


class Forge(ToyLibrary):
    """A toy library whose models are of a package."""

    package = "forge"


@pytest.fixture
def key():
    def make(library=None, of=None, dtype="float32", seed=0):
        for cached in (module._sources, module._binaries, module._text):
            cached.cache_clear()
        return oracle_key(library or Forge(), of or family(), dtype, seed)

    yield make
    for cached in (module._sources, module._binaries, module._text):
        cached.cache_clear()


def test_the_same_has_the_same_key(package, key):
    assert key() == key()


def test_a_file_of_the_library_s_package_changes_it(package, key):
    before = key()
    (package / "models" / "one.py").write_text("x = 2\n")
    changed = key()
    assert changed != before
    (package / "models" / "one.py").rename(package / "models" / "two.py")
    assert key() not in (before, changed)


def test_what_is_no_code_does_not_change_it(package, key):
    before = key()
    (package / "read.me").write_text("still no code\n")
    assert key() == before


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"seed": 1}])
def test_dtype_and_seed_change_it(package, key, other):
    assert key(**other) != key()


def test_config_and_recipe_change_it(package, key):
    plain = family()
    config = msgspec.structs.replace(plain, config={**plain.config, "rope_theta": 1.0})
    facts = msgspec.structs.replace(plain.facts, seed=1)
    recipe = msgspec.structs.replace(plain, facts=facts)
    assert len({key(), key(of=config), key(of=recipe)}) == 3


def test_a_model_file_beside_the_family_changes_it(package, key, tmp_path):
    facts = msgspec.structs.replace(family().facts, model_file="model.py")
    own = msgspec.structs.replace(family(), facts=facts, path=str(tmp_path / "own.json"))
    (tmp_path / "model.py").write_text("a = 1\n")
    before = key(of=own)
    (tmp_path / "model.py").write_text("a = 2\n")
    assert key(of=own) != before


def test_versions_and_device_change_it(package, key):
    newer = type("Forge", (Forge,), {"versions": lambda self: {"toy": "2"}})
    elsewhere = type("Forge", (Forge,), {"device": lambda self: "slide rule"})
    assert len({key(), key(newer()), key(elsewhere())}) == 3


def test_a_setting_of_mlx_changes_it_and_others_do_not(package, key, monkeypatch):
    monkeypatch.delenv("MLX_ENABLE_TF32", raising=False)
    before = key()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert key() == before
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    assert key() != before


def test_a_rebuilt_binary_changes_it(package, key, monkeypatch, tmp_path):
    binary = tmp_path / "anvil" / "core.so"
    binary.write_bytes(b"one")
    monkeypatch.setattr(module, "_BINARY_PACKAGE", "anvil")
    (tmp_path / "anvil" / "__init__.py").write_text("")
    before = key()
    binary.write_bytes(b"another")
    assert key() != before


def test_real_checkpoints_and_libraries_without_a_package_have_none(package, key):
    real = msgspec.structs.replace(family(), checkpoint=Checkpoint("somewhere"))
    assert key(of=real) is None
    assert key(ToyLibrary()) is None
