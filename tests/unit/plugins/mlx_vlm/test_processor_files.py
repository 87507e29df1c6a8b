"""The files of a processor: every id a word, the special tokens where the family says."""

import json

import msgspec
import pytest
from mlx_vlm.prompt_utils import apply_chat_template
from transformers import AutoTokenizer

from conformance.core.errors import FamilyError
from conformance.core.family import Facts, Family, Processor, Tokenizer
from conformance.plugins.mlx_vlm.processor_files import text_of, write_processor


def family(**tokenizer):
    processor = Processor(Tokenizer(**tokenizer), {"preprocessor_config.json": {"size": 4}})
    facts = Facts(library="mlx_vlm", tokens=(1, 30), processor=processor)
    return Family("tiny", facts, {"vocab_size": 32})


def test_ids_and_words_are_the_same_thing(tmp_path):
    write_processor(family(special={"<image>": 31}, roles={"image_token": "<image>"}), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(text_of([(3, 17), "<image>", (9,)])).input_ids == [3, 17, 31, 9]
    assert tokenizer("t3<image>t9").input_ids == [3, 31, 9]
    assert tokenizer.image_token == "<image>"
    assert json.loads((tmp_path / "preprocessor_config.json").read_text()) == {"size": 4}


def test_the_chat_template_adds_nothing(tmp_path):
    made = family(special={"<image>": 31})
    processor = msgspec.structs.replace(made.facts.processor, markers={"image": "<image>"})
    facts = msgspec.structs.replace(made.facts, processor=processor)
    write_processor(msgspec.structs.replace(made, facts=facts), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    parts = [{"type": "text", "text": "t5"}, {"type": "image"}, {"type": "text", "text": "t6"}]
    written = tokenizer.apply_chat_template([{"role": "user", "content": parts}], tokenize=False)
    assert tokenizer(written).input_ids == [5, 31, 6]
    plain = tokenizer.apply_chat_template([{"role": "user", "content": "t5 t6"}], tokenize=False)
    assert tokenizer(plain).input_ids == [5, 6]


@pytest.mark.parametrize("model_type", ["plamo2vl", "moondream2"])
def test_a_model_of_plain_prompts_gets_its_text(tmp_path, model_type):
    """mlx-vlm hands a template strings there, which transformers 5.24 refuses."""
    made = family()
    config = {**made.config, "model_type": model_type}
    write_processor(msgspec.structs.replace(made, config=config), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert apply_chat_template(tokenizer, config, "t5 t6") == "t5 t6"


def test_two_special_tokens_of_one_id_are_reported(tmp_path):
    with pytest.raises(FamilyError, match="two have one id"):
        write_processor(family(special={"<a>": 31, "<b>": 31}), tmp_path)


def test_a_role_of_no_special_token_is_reported(tmp_path):
    with pytest.raises(FamilyError, match="pad_token is '<pad>'"):
        write_processor(family(roles={"pad_token": "<pad>"}), tmp_path)
