"""Loading through the library's own loader, and what the measurement says of what was loaded."""

import json

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from mlx.utils import tree_flatten

from conformance.backend.calibration import calibrate, write_recipe
from conformance.backend.sensitivity_measure import measure
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Recipe, WeightRule, load_families, load_family, parse_family
from conformance.plugins.mlx_lm import inventory
from conformance.plugins.mlx_lm.loading import load, write_checkpoint

FAMILIES = inventory.FAMILIES


def family(name, **changes):
    found = load_family(FAMILIES / f"{name}.json")
    return msgspec.structs.replace(found, facts=msgspec.structs.replace(found.facts, **changes))


@pytest.mark.parametrize("name", ["llama", "mamba2", "baichuan_m1", "gemma3"])
def test_loads_in_evaluation_mode_and_runs(name):
    loaded = load(family(name))
    assert not loaded.model.training
    logits = loaded.model(mx.array([[1, 2, 3]]))
    assert np.isfinite(np.array(logits)).all()


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
    found = inventory.coverage()
    covered = {f.module for f in load_families(FAMILIES) if not f.facts.model_file}
    assert set(found.modules) == covered | found.excluded.keys()
    assert not covered & found.excluded.keys()


def test_modules_with_dashes_are_found():
    assert "lfm2-vl" in inventory.coverage().modules
