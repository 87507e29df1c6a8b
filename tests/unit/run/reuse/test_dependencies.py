"""What a family's cases hang on: the modules that its model is from, and what these import."""

import sys
import zipfile

import pytest
from mlx_lm.models import gemma3_text, llama

from conformance.reference.surroundings import Environment
from conformance.run.reuse import dependencies, import_graph
from conformance.run.reuse.dependencies import origins
from conformance.run.reuse.import_graph import file_of

ARGS = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8,
    "num_attention_heads": 1, "rms_norm_eps": 1e-5, "vocab_size": 8,
}  # fmt: skip


def modules_of(model, *packages):
    return dependencies.modules_of(model, Environment.first(), *packages)


@pytest.fixture
def model():
    return llama.Model(llama.ModelArgs(**ARGS))


def test_the_models_module_and_all_that_it_imports_count(model):
    found = modules_of(model, ("mlx_lm",))
    assert {"mlx_lm.models.llama", "mlx_lm.models.base", "mlx_lm.models.cache"} <= found
    assert {"mlx_lm", "mlx_lm.models.rope_utils", "mlx_lm.generate"} <= found


def test_another_model_that_is_loaded_too_does_not(model):
    assert gemma3_text.__name__ in sys.modules
    assert "mlx_lm.models.gemma3_text" not in modules_of(model, ("mlx_lm",))


def test_a_part_from_another_models_module_counts(model):
    model.model.layers[0].self_attn.more = [{"x": gemma3_text.RMSNorm(8)}]
    assert "mlx_lm.models.gemma3_text" in modules_of(model, ("mlx_lm",))


def test_a_function_of_another_module_counts(model):
    model.helper = gemma3_text.create_attention_mask
    assert gemma3_text.create_attention_mask.__module__ in origins(model)


def local():
    return set(dependencies.local_modules(Environment.first()))


def test_a_module_of_the_users_own_is_local(tmp_path, monkeypatch):
    (tmp_path / "users_own_engine.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "users_own_engine", __import__("users_own_engine"))
    assert tmp_path / "users_own_engine.py" in local()


def test_a_module_whose_file_is_gone_is_not(tmp_path, monkeypatch):
    (tmp_path / "for_a_moment.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "for_a_moment", __import__("for_a_moment"))
    (tmp_path / "for_a_moment.py").unlink()
    assert tmp_path / "for_a_moment.py" not in local()


def test_an_archive_of_the_users_own_is_local(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_engine.py", "x = 1")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    monkeypatch.setitem(sys.modules, "packed_engine", __import__("packed_engine"))
    assert tmp_path / "packed.zip" in local()


def test_a_mapped_library_outside_of_what_is_installed_counts(model):
    if sys.platform != "linux":
        pytest.skip("the system's libraries count with its version")
    assert [name for name in modules_of(model) if "/libc.so" in name or "/libc-" in name]


def test_a_library_from_elsewhere_than_its_file_is_not_known(model, tmp_path, monkeypatch):
    other = type(sys)("mlx_lm.models.packed")
    other.__file__ = str(tmp_path / "mlx_lm.zip/mlx_lm/models/packed.py")
    monkeypatch.setitem(sys.modules, "mlx_lm.models.packed", other)
    assert modules_of(model, ("mlx_lm",)) is None


def test_nothing_installed_and_nothing_of_this_package_counts(model):
    found = modules_of(model)
    assert not [name for name in found if name.startswith(("conformance", "mlx.", "numpy"))]
    assert not [name for name in found if "site-packages" in name]


def test_a_package_shadows_a_module_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(import_graph, "package_folder", lambda name: tmp_path)
    (tmp_path / "one.py").touch()
    assert file_of("lib.one") == tmp_path / "one.py"
    (tmp_path / "one").mkdir()
    (tmp_path / "one/__init__.py").touch()
    assert file_of("lib.one") == tmp_path / "one/__init__.py"
    assert file_of("lib.two") is None


def test_imports_within_functions_and_relative_ones_are_seen(tmp_path, monkeypatch):
    package = tmp_path / "lib"
    (package / "deep").mkdir(parents=True)
    (package / "deep/one.py").write_text(
        "from . import two\n\ndef f():\n    from ..three import x\n    import lib.four\n"
    )
    monkeypatch.setattr(import_graph, "package_folder", lambda name: package)
    found = dependencies._imported("lib.deep.one")
    assert {"lib", "lib.deep", "lib.deep.two", "lib.three", "lib.four"} <= found
