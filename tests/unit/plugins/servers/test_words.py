"""Texts of a served checkpoint are its token ids, by the files of a real tokenizer."""

import json

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from conformance.core.errors import ModelError
from conformance.plugins.servers.words import END, end_nowhere, text_of, tokens_of, write_tokenizer


def test_a_text_has_the_tokens_that_it_says(tmp_path):
    write_tokenizer(tmp_path, 32)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode(text_of((5, 31, 0))).ids == [5, 31, 0]
    assert tokens_of(tokenizer.decode([5, 31, 0])) == (5, 31, 0)
    assert tokenizer.token_to_id(END) == 32  # the model's vocabulary ends before it


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3_5", "qwen3_5_moe"])
def test_every_class_that_transformers_takes_has_the_words(tmp_path, model_type):
    write_tokenizer(tmp_path, 32)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode(text_of((5, 31, 0, 3))) == [5, 31, 0, 3]
    assert tokens_of(tokenizer.decode([5, 31, 0, 3])) == (5, 31, 0, 3)
    assert tokenizer.encode("t1 t2 \n") == [1, 2]


def test_another_word_is_named():
    with pytest.raises(ValueError, match="'five', which is no word"):
        tokens_of("t1 five")


def test_an_answer_of_a_family_with_a_tokenizer_ends_nowhere(tmp_path):
    write_tokenizer(tmp_path, 32)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = []
    del tokenizer["model"]["vocab"][END]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "config.json").write_text('{"eos_token_id": 3}')
    end_nowhere(tmp_path, 32)
    assert json.loads((tmp_path / "config.json").read_text()) == {"eos_token_id": 32}
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == END


def test_an_end_within_the_vocabulary_is_refused(tmp_path):
    write_tokenizer(tmp_path, 32)
    with pytest.raises(ModelError, match="got token id 32, of 64"):
        end_nowhere(tmp_path, 64)
