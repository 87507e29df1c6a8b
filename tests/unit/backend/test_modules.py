"""What a model that somebody else loaded says of itself."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

from conformance.backend.modules import config_of, is_module, working_dtype
from conformance.core.errors import ModelError


class Model(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.embedding = nn.Embedding(12, 4)
        if settings:
            self.args = SimpleNamespace(**settings)

    def __call__(self, tokens):
        return self.embedding.as_linear(self.embedding(tokens))


def test_only_a_module_is_a_model_in_memory():
    assert is_module(Model())
    assert not is_module("llama")


def test_its_arguments_are_its_config():
    found = config_of(Model(vocab_size=32, model_type="mine", sliding_window=8))
    assert found == {"vocab_size": 32, "model_type": "mine", "sliding_window": 8}


def test_without_arguments_a_call_gives_the_vocabulary():
    found = config_of(Model())
    assert found["vocab_size"] == 12
    assert found["model_type"] == __name__.rpartition(".")[2]


def test_a_model_without_a_vocabulary_is_refused():
    class Mute(Model):
        def __call__(self, tokens):
            raise ValueError("needs an image")

    with pytest.raises(ModelError, match=r"Mute: names no vocab_size, .* ValueError: needs an ima"):
        config_of(Mute())


def test_the_dtype_is_that_of_most_parameters():
    model = Model()
    assert working_dtype(model) == "float32"
    model.set_dtype(mx.bfloat16)
    assert working_dtype(model) == "bfloat16"
