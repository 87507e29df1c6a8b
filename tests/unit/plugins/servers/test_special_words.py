"""Reasoning, text and calls of tools are put together again as they were generated."""

import json

import pytest

from conformance.plugins.servers.asking import Answer, Part, PartKind
from conformance.plugins.servers.claims import about_parts, joined
from conformance.plugins.servers.special_words import MARKERS, rename, tokens_of, whole_text
from conformance.plugins.servers.words import write_tokenizer

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
    with pytest.raises(ValueError, match="'<', which is no word"):
        tokens_of("t1<b>", WORDS)


def test_words_that_end_a_line_are_read_with_and_without_its_end():
    words = (("<1..>\n", 1), ("<2..>\n", 2), ("<2", 3))
    assert tokens_of("<1..>\n<2..>\nt7<2<1..>", words) == (1, 2, 7, 3, 1)
    with pytest.raises(ValueError, match="'<', which is no word"):
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
