"""Texts of a served checkpoint are its token ids, by the files of a real tokenizer."""

import json

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from conformance.core.errors import ModelError
from conformance.plugins.servers.answers import Answer, Part, PartKind
from conformance.plugins.servers.claims import about_parts, joined
from conformance.plugins.servers.words import (
    END,
    MARKERS,
    end_by,
    end_nowhere,
    rename,
    text_of,
    tokens_of,
    whole_text,
    write_tokenizer,
)


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


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_tokens_that_end_an_answer_are_named_and_are_words_as_before(tmp_path, model_type):
    write_tokenizer(tmp_path, 32)
    end_by(tmp_path, (3, 7))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.eos_token_id == 3
    assert tokenizer.encode(text_of((31, 3, 7))) == [31, 3, 7]
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [3, 7]}


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


WORDS = (
    *(("<thi", 0), ("nk>", 1), ("</th", 2), ("ink>", 3), ("<tool_", 4), ("call>", 5)),
    *(('{"name":"look",', 6), ('"arguments":{}}', 7), ("</tool", 8), ("_call>", 9)),
)
TOKENS = (0, 1, 20, 2, 3, 21, 22, 4, 5, 6, 7, 8, 9)
PARTS = [
    Part(PartKind.REASONING, "t20"),
    Part(PartKind.TEXT, "t21"),
    Part(PartKind.TEXT, "t22"),
    Part(PartKind.TOOL, '{"name":"look",'),
    Part(PartKind.TOOL, '"arguments":{}}'),
]


def test_parts_are_the_tokens_with_their_markers():
    assert tokens_of(whole_text(PARTS, MARKERS), WORDS) == TOKENS
    (claim,) = about_parts(Answer(parts=PARTS), TOKENS, WORDS)
    assert claim.holds


@pytest.mark.parametrize(
    "parts",
    [
        PARTS[1:],  # the reasoning is lost
        [Part(PartKind.TEXT, "t20"), *PARTS[1:]],  # reasoning is taken for text
        [*PARTS[:1], Part(PartKind.TEXT, "ink>t21"), *PARTS[2:]],  # a marker is cut in two
        PARTS[:3],  # the call is lost
        [*PARTS[:1], Part(PartKind.TEXT, "<b>"), *PARTS[1:]],
        # all markers, in two pieces each, are left in the text: its tokens are right
        [Part(PartKind.TEXT, text) for text in ("<thi", "nk>t20</th", "ink>t21t22")],
    ],
)
def test_other_parts_are_found(parts):
    (claim,) = about_parts(Answer(parts=parts), TOKENS, WORDS)
    assert not claim.holds


def test_each_kind_is_compared_by_itself():
    assert joined(Answer(text="t1 t2", parts=[Part(PartKind.TEXT, "t1 t2")])) == "t1 t2"
    assert joined(Answer(parts=PARTS)).startswith("text: t21t22; reasoning: t20; tool: {")


def test_what_is_no_word_is_an_error():
    with pytest.raises(ValueError, match="'<b>', which is no word"):
        tokens_of("t1<b>", WORDS)


def test_words_that_end_a_line_are_read_with_and_without_its_end():
    words = (("<1..>\n", 1), ("<2..>\n", 2), ("<2", 3))
    assert tokens_of("<1..>\n<2..>\nt7<2<1..>", words) == (1, 2, 7, 3, 1)
    with pytest.raises(ValueError, match=r"'<1\.\.', which is no word"):
        tokens_of("<1..", words)


def test_a_tokenizer_has_the_words(tmp_path):
    write_tokenizer(tmp_path, 32)
    rename(tmp_path, WORDS)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    assert vocabulary["<thi"] == 0
    assert "t0" not in vocabulary
    assert vocabulary["<think>"] > 32
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert "<tool_call>" in config["chat_template"]


def test_a_stop_string_has_the_tokens_that_an_answer_has(tmp_path):
    words = [(" snow", 4), (" fell", 5), ('{"na', 6), ('me"', 7), ("3", 8)]
    write_tokenizer(tmp_path, 32)
    rename(tmp_path, words)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode(" snow fell").ids == [4, 5]
    assert tokenizer.encode('{"name"').ids == [6, 7]
    assert tokenizer.encode("t13 t3 t9").ids == [13, 3, 9]
