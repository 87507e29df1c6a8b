"""Where the processor of a tiny family comes from."""

from pathlib import Path

from conformance.core.family import Facts, Family, Processor, Tokenizer
from conformance.tools.new_family.processing import TEXT_ONLY, proposals
from conformance.tools.new_family.shrink import shrink
from conformance.tools.new_family.source import Source, read_source

CONFIGS = Path(__file__).parents[3] / "configs"
QWEN = read_source(CONFIGS / "Qwen2.5-VL-7B-Instruct")
MARKER = "<|vision_start|><|image_pad|><|vision_end|>"


def offered(source, known=None):
    """All facts that are offered, with where they are from."""
    shrunk = shrink(source.config, files=source.files, special=source.texts)
    return shrunk, list(proposals(source, shrunk, known))


def test_own_files_come_first_and_no_processor_last():
    _, found = offered(QWEN)
    first, origin = found[0]
    assert first.processor.markers == {"image": MARKER}
    assert "preprocessor_config.json" in origin
    assert found[-1][0] == TEXT_ONLY


def test_special_tokens_have_the_ids_that_the_config_gives_them():
    shrunk, found = offered(QWEN)
    special = found[0][0].processor.tokenizer.special
    assert special["<|image_pad|>"] == shrunk.config["image_token_id"]
    assert special["<|im_end|>"] == shrunk.config["eos_token_id"]
    assert len(set(special.values())) == len(special)
    assert min(special.values()) >= shrunk.text_end


def test_an_installed_family_lends_texts_but_not_ids():
    known = Family(
        "known",
        Facts(
            modalities=("text", "image"),
            processor=Processor(
                Tokenizer({"<eos>": 9, "<|image_pad|>": 250}, {"eos_token": "<eos>"}),
                {"preprocessor_config.json": {"patch_size": 2}},
                {"image": "<|image_pad|>"},
            ),
        ),
        {"image_token_id": 250},
    )
    bare = Source("mine", QWEN.path, QWEN.config)
    shrunk, found = offered(bare, known)
    facts, origin = found[0]
    assert origin.endswith("installed family known")
    special = facts.processor.tokenizer.special
    assert special["<|image_pad|>"] == shrunk.config["image_token_id"]
    assert special["<eos>"] not in {special["<|image_pad|>"], 9}
    assert facts.processor.files == {"preprocessor_config.json": {"patch_size": 4}}


def test_a_config_alone_is_text_alone():
    _, found = offered(Source("mine", QWEN.path, QWEN.config))
    assert [facts for facts, _ in found] == [TEXT_ONLY]
