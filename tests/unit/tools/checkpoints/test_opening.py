"""A folder becomes a family: its name, what its module's tiny family knows, its prompts."""

import runpy

import pytest

from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.scenarios.scenario import Brief
from conformance.tools.checkpoints import preflight
from conformance.tools.checkpoints.given import Given
from conformance.tools.checkpoints.opening import open_checkpoint
from conformance.tools.checkpoints.prompts import BUILT_IN


@pytest.fixture
def opened(registry, folder, tmp_path):
    def call(**more):
        given = Given(folder, cache=tmp_path / "cache", **more)
        return open_checkpoint(registry, given, ("right",))

    return call


def test_it_is_a_family_of_the_engine_s_library(opened, folder):
    found = opened()
    assert (found.name, found.dtype, found.engines) == ("My_Model-8bit", "float16", ("right",))
    family = found.registry.families["toy", "My_Model-8bit"]
    assert family.config["hidden_size"] == 32
    assert family.checkpoint.folder == str(folder)
    assert len(family.checkpoint.digest) == 64


def test_its_architecture_is_that_of_its_module_s_tiny_family(opened, change):
    change(sliding_window=128)
    facts = opened().registry.families["toy", "My_Model-8bit"].facts
    assert (facts.module, facts.positions, facts.bidirectional_prompt) == ("toy", False, True)
    assert facts.window == 128, "the config's own, not that of the tiny one"


def test_prompts_are_pieces_of_the_texts(opened, tmp_path):
    texts = tmp_path / "p.txt"
    texts.write_text("a bb ccc\ndddd eeeee\n")
    family = opened(prompts=texts).registry.families["toy", "My_Model-8bit"]
    assert family.checkpoint.texts == ((1, 2, 3), (4, 5))
    assert len(opened().registry.families["toy", "My_Model-8bit"].checkpoint.texts) == len(BUILT_IN)


def test_a_brief_cuts_them_to_any_length():
    texts = ((1, 2, 3), (4, 5))
    brief = Brief((1, 9), None, False, 0, frozenset(), (), None, texts=texts)
    cycle = [1, 2, 3, 4, 5] * 4
    starts = set()
    for length in (1, 2, 7, 12):
        for variant in range(4):
            prompt = brief.prompt(length, variant)
            assert len(prompt) == length
            assert list(prompt) == cycle[prompt[0] - 1 :][:length]
            assert prompt == brief.prompt(length, variant)
            starts.add(prompt[0])
    assert len(starts) > 3, "prompts begin at different places"


def test_an_unknown_module_has_no_facts(opened, change):
    change(model_type="novel")
    assert opened().registry.families["toy", "My_Model-8bit"].facts.positions


def test_code_is_run_only_if_asked(opened, change):
    change(model_file="modeling.py")
    with pytest.raises(CheckpointError, match="'model_file' asks for Python code"):
        opened()
    assert opened(trusted=True).registry.families["toy", "My_Model-8bit"].checkpoint.trusted


@pytest.mark.parametrize("size", [None, "many"])
def test_a_missing_vocabulary_is_reported(opened, change, size):
    change(vocab_size=size)
    with pytest.raises(
        CheckpointError, match=r"config.json: the field 'vocab_size' is (missing|no whole number)"
    ):
        opened()


def test_a_missing_tokenizer_is_reported(opened, folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"My Model-8bit: holds no tokenizer \(tokenizer.js"):
        opened()


def test_a_tokenizer_of_another_model_is_reported(opened, change):
    change(vocab_size=7)
    with pytest.raises(CheckpointError, match=r"and 'vocab_size' in config.json is 7"):
        opened()


def test_a_tokenizer_that_makes_nothing_is_reported(opened, library):
    library.tokenize = lambda folder, texts, trusted: ((),) * len(texts)
    with pytest.raises(CheckpointError, match="makes no token of any prompt"):
        opened()


def test_memory_comes_before_all_that_takes_time(opened, monkeypatch, tmp_path):
    monkeypatch.setattr(preflight, "available_bytes", lambda: 100)
    with pytest.raises(CheckpointError, match="--force runs it all the same"):
        opened()
    assert not (tmp_path / "cache").exists()
    (note,) = opened(force=True).notes
    assert note.startswith("My_Model-8bit: float16, ")


def test_weights_that_do_not_fit_are_reported_before_they_are_read(opened, library, tmp_path):
    library.raises = ModelError("x")
    with pytest.raises(CheckpointError, match="My Model-8bit: x"):
        opened()
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_reported_and_done_without(registry, folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = open_checkpoint(registry, Given(folder, cache=tmp_path / "file" / "cache"), ("right",))
    assert "cache: nothing can be cached there (Not a directory)" in found.notes[-1]
    assert found.registry.families["toy", "My_Model-8bit"].checkpoint.digest


def test_a_library_that_runs_code_of_the_folder_all_the_same_is_stopped(opened, library, folder):
    """Its plugin was given ``trusted=False``; not all parts of libraries heed that."""
    mark = folder.parent / "mark"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()")

    def check(path, *, trusted):
        runpy.run_path(str(path / "evil.py"))

    library.check = check
    with pytest.raises(Unsupported, match=r"evil\.py\); --trust-remote-code allows it"):
        opened()
    assert not mark.exists()
    opened(trusted=True)
    assert mark.exists()
