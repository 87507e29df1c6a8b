"""Loading through the library's own loader, and what the measurement says of what was loaded."""

import ast
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import msgspec
import numpy as np
import pytest
from checkpoint_folders import make_folder, quantized, sharded
from mlx.utils import tree_flatten

from conformance.backend.calibration import calibrate, write_recipe
from conformance.backend.sensitivity_measure import measure
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import (
    Checkpoint,
    Facts,
    Family,
    Recipe,
    WeightRule,
    load_families,
    load_family,
    parse_family,
)
from conformance.plugins.mlx_lm import loading
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_lm.loading import load, write_checkpoint
from conformance.plugins.mlx_lm.plugin import FAMILIES


def family(name, **changes):
    found = load_family(FAMILIES / f"{name}.json")
    return msgspec.structs.replace(found, facts=msgspec.structs.replace(found.facts, **changes))


@pytest.mark.parametrize("name", ["llama", "mamba2", "baichuan_m1", "gemma3"])
def test_loads_in_evaluation_mode_and_runs(name):
    loaded = load(family(name))
    assert not loaded.model.training
    logits = loaded.model(mx.array([[1, 2, 3]]))
    assert np.isfinite(np.array(logits)).all()


@pytest.mark.parametrize(("name", "bits", "group"), [("llama-4bit", 4, 32), ("llama-8bit", 8, 64)])
def test_packed_weights_are_those_of_the_plain_family_in_fewer_bits(name, bits, group):
    packed = load(family(name)).model
    plain = load(msgspec.structs.replace(family(name), facts=family("llama").facts)).model
    layers = dict(packed.named_modules())
    assert isinstance(layers["model.layers.0.self_attn.q_proj"], nn.QuantizedLinear)
    assert isinstance(layers["model.embed_tokens"], nn.QuantizedEmbedding)
    for path, layer in dict(plain.named_modules()).items():
        if isinstance(layer, nn.Linear):
            found = layers[path]
            wide = mx.dequantize(found.weight, found.scales, found.biases, group, bits)
            largest = mx.abs(found.scales).max().item()
            assert 0 < mx.abs(wide - layer.weight).max().item() <= largest


def test_experts_are_packed_and_what_the_model_wants_in_other_bits_is_not():
    layers = dict(load(family("qwen3_moe-4bit")).model.named_modules())
    assert type(layers["model.layers.0.mlp.switch_mlp.up_proj"]).__name__ == "QuantizedSwitchLinear"
    assert type(layers["model.layers.0.mlp.gate"]) is nn.Linear


def test_loading_twice_gives_the_same_bits_and_another_seed_does_not():
    one, two, other = (
        dict(tree_flatten(load(family("llama"), seed=seed).model.parameters()))
        for seed in (0, 0, 1)
    )
    assert all(mx.array_equal(one[path], two[path]) for path in one)
    assert not any(mx.array_equal(one[path], other[path]) for path in one)


def test_low_precision_casts_all_but_what_the_model_keeps_back():
    parameters = dict(
        tree_flatten(load(family("deepseek_v3"), dtype="bfloat16").model.parameters())
    )
    kept = [path for path in parameters if "e_score_correction_bias" in path]
    assert kept
    for path, value in parameters.items():
        assert value.dtype == (mx.float32 if path in kept else mx.bfloat16)


def test_checkpoint_has_the_config_without_our_section(tmp_path):
    write_checkpoint(family("llama"), tmp_path, dtype="float32", seed=0)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert "conformance" not in config
    assert (tmp_path / "model.safetensors").is_file()


def test_a_model_file_beside_the_family_is_used(tmp_path):
    (tmp_path / "mine.py").write_text("from mlx_lm.models.llama import Model, ModelArgs\n")
    text = (FAMILIES / "llama.json").read_text()
    path = tmp_path / "mine.json"
    config = json.loads(text)
    config["model_type"] = "mine"
    config["conformance"]["model_file"] = "mine.py"
    path.write_text(json.dumps(config))
    logits = load(load_family(path)).model(mx.array([[1, 2]]))
    np.testing.assert_array_equal(
        np.array(logits), np.array(load(family("llama")).model(mx.array([[1, 2]])))
    )


def test_unknown_model_type_is_unsupported_in_the_librarys_words():
    with pytest.raises(Unsupported, match="Model type no_such_model not supported"):
        load(parse_family('{"model_type": "no_such_model", "vocab_size": 8}', name="x"))


def test_unknown_dtype_is_an_error():
    with pytest.raises(ModelError, match="dtype 'int8' is none of float32"):
        load(family("llama"), dtype="int8")


def test_sanitize_that_spoils_converted_weights_is_found(tmp_path):
    (tmp_path / "spoilt.py").write_text(
        "from mlx_lm.models.llama import Model as Llama, ModelArgs\n"
        "class Model(Llama):\n"
        "    def sanitize(self, weights):\n"
        "        return {k: v + ('norm' in k) for k, v in weights.items()}\n"
    )
    config = json.loads((FAMILIES / "llama.json").read_text())
    config["conformance"]["model_file"] = "spoilt.py"
    (tmp_path / "spoilt.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"loading changed \d+ of \d+ parameters"):
        load(load_family(tmp_path / "spoilt.json"))


@pytest.mark.parametrize("name", ["llama", "falcon_h1"])
def test_shipped_recipes_are_sensitive(name):
    measured = measure(load(family(name)), prompts=1)
    assert measured.ratio >= 1000
    assert measured.varied
    assert not measured.disagreements


def test_planted_insensitive_recipe_is_reported():
    """Attention whose output projection is zero reads nothing of its cache."""
    insensitive = Recipe(rules=(WeightRule("*o_proj.weight"),))
    measured = measure(load(family("llama", weights=insensitive)), prompts=1)
    assert measured.ratio < 10
    assert not measured.sensitive


def test_calibration_finds_a_scale_and_writes_only_the_recipe(tmp_path):
    path = tmp_path / "llama.json"
    before = json.loads((FAMILIES / "llama.json").read_text())
    before["conformance"]["weights"] = {"logit_scale": 0.01}
    path.write_text(json.dumps(before))
    found = calibrate(load_family(path), lambda family: measure(load(family)))
    assert found.changed
    assert found.after.score > found.before.score
    write_recipe(found.proposal)
    after = json.loads(path.read_text())
    assert list(after) == list(before)
    assert {k: v for k, v in after.items() if k != "conformance"} == {
        k: v for k, v in before.items() if k != "conformance"
    }
    assert load_family(path).facts == found.proposal.facts


def test_every_installed_module_has_a_family_or_a_reason():
    found = MlxLm().coverage()
    covered = {f.module for f in load_families(FAMILIES) if not f.facts.model_file}
    assert set(found.modules) == covered | found.excluded.keys()
    assert not covered & found.excluded.keys()


def test_modules_with_dashes_are_found():
    assert "lfm2-vl" in MlxLm().coverage().modules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("lm") / "tiny")


def opened(folder, dtype="float32", **more):
    found = Family("tiny", Facts(), {}, checkpoint=Checkpoint(str(folder), **more))
    return load(found, dtype=dtype).model


def parameters(model):
    return dict(tree_flatten(model.parameters()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_is_loaded_in_the_dtype_of_the_arguments(folder, dtype):
    model = opened(folder, dtype)
    assert {value.dtype for value in parameters(model).values()} == {getattr(mx, dtype)}
    assert not model.training


@pytest.mark.parametrize("bits", [4, 8])
def test_a_converted_one_stays_quantized(folder, bits, tmp_path):
    model = opened(quantized(folder, tmp_path / "q", bits), "bfloat16")
    layer = model.model.layers[0].mlp.up_proj
    assert isinstance(layer, nn.QuantizedLinear)
    assert layer.bits == bits
    assert layer.weight.dtype == mx.uint32
    assert layer.scales.dtype == mx.bfloat16


@pytest.mark.parametrize("kind", ["sharded", "tied"])
def test_it_is_what_the_library_itself_loads(kind, folder, tmp_path):
    made = tmp_path / kind
    if kind == "sharded":
        sharded(folder, made)
    else:
        make_folder(made, tie_word_embeddings=True)
    model, tokenizer = mlx_lm.load(str(made))
    mine = parameters(opened(made))
    assert mine.keys() == parameters(model).keys()
    assert all(mx.array_equal(mine[path], value) for path, value in parameters(model).items())
    assert ("lm_head.weight" in mine) is (kind == "sharded")
    text = "The lighthouse keeper"
    (tokens,) = MlxLm().tokenize(made, [text], trusted=False)
    assert tokens == tuple(tokenizer.encode(text, add_special_tokens=False))
    assert tokenizer.decode(list(tokens)) == text


def test_code_of_the_folder_is_run_only_if_trusted(folder, tmp_path):
    made = shutil.copytree(folder, tmp_path / "own")
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "model_file": "own.py"}))
    ran = tmp_path / "ran"
    code = "from mlx_lm.models.llama import Model, ModelArgs\n"
    (made / "own.py").write_text(f"{code}open({str(ran)!r}, 'w').close()\n")
    for call in (lambda: MlxLm().check(made), lambda: opened(made)):
        with pytest.raises(ModelError, match="custom module"):
            call()
    assert not ran.exists()
    MlxLm().check(made, trusted=True)
    assert ran.exists()
    assert opened(made, trusted=True)


@pytest.fixture
def unloaded(monkeypatch):
    """As in a process that has not met the family."""
    monkeypatch.delitem(sys.modules, "mlx_lm.models.olmo", raising=False)


def olmo():
    return load_family(FAMILIES / "olmo.json")


def test_the_family_is_loaded_and_the_package_is_missing_afterwards(unloaded):
    assert load(olmo()).model.model_type == "olmo"
    assert "hf_olmo" not in sys.modules


def test_without_it_the_module_ends_the_process(unloaded, monkeypatch):
    monkeypatch.setattr(loading, "_LOOKED_FOR", {})
    with pytest.raises(Unsupported, match="install ai2-olmo"):
        load(olmo())


def test_a_package_that_is_installed_is_left_alone(unloaded, monkeypatch):
    own = ModuleType("hf_olmo")
    own.__spec__ = importlib.util.spec_from_loader("hf_olmo", None)
    monkeypatch.setitem(sys.modules, "hf_olmo", own)
    load(olmo())
    assert sys.modules["hf_olmo"] is own


def test_the_module_uses_nothing_of_the_package():
    load(olmo())
    source = Path(sys.modules["mlx_lm.models.olmo"].__file__).read_text(encoding="utf-8")
    names = [node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    assert "hf_olmo" not in names
