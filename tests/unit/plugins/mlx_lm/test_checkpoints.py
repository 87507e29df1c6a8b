"""Real checkpoints as users have them: quantized, in several files, with tied embeddings."""

import json
import shutil

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from checkpoint_folders import make_folder, quantized, sharded
from mlx.utils import tree_flatten

from conformance.core.errors import ModelError
from conformance.core.family import Checkpoint, Facts, Family
from conformance.plugins.mlx_lm import checkpoints

FAMILY = Family("tiny", Facts(), {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("lm") / "tiny")


def load(folder, dtype="float32", **more):
    return checkpoints.load(FAMILY, Checkpoint(str(folder), **more), dtype=dtype)


def parameters(model):
    return dict(tree_flatten(model.parameters()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_is_loaded_in_the_dtype_of_the_arguments(folder, dtype):
    model = load(folder, dtype)
    assert {value.dtype for value in parameters(model).values()} == {getattr(mx, dtype)}
    assert not model.training


@pytest.mark.parametrize("bits", [4, 8])
def test_a_converted_one_stays_quantized(folder, bits, tmp_path):
    model = load(quantized(folder, tmp_path / "q", bits), "bfloat16")
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
    mine = parameters(load(made))
    assert mine.keys() == parameters(model).keys()
    assert all(mx.array_equal(mine[path], value) for path, value in parameters(model).items())
    assert ("lm_head.weight" in mine) is (kind == "sharded")
    text = "The lighthouse keeper"
    (tokens,) = checkpoints.tokenize(made, [text], trusted=False)
    assert tokens == tuple(tokenizer.encode(text, add_special_tokens=False))
    assert tokenizer.decode(list(tokens)) == text


def test_code_of_the_folder_is_run_only_if_trusted(folder, tmp_path):
    made = shutil.copytree(folder, tmp_path / "own")
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "model_file": "own.py"}))
    ran = tmp_path / "ran"
    code = "from mlx_lm.models.llama import Model, ModelArgs\n"
    (made / "own.py").write_text(f"{code}open({str(ran)!r}, 'w').close()\n")
    for call in (lambda: checkpoints.check(made), lambda: load(made)):
        with pytest.raises(ModelError, match="custom module"):
            call()
    assert not ran.exists()
    checkpoints.check(made, trusted=True)
    assert ran.exists()
    assert load(made, trusted=True)
