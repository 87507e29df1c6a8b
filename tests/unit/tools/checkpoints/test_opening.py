"""A folder becomes a family: its name, what its module's tiny family knows, its prompts."""

import runpy

import pytest

from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.scenarios.scenario import Brief
from conformance.tools.checkpoints import opening
from conformance.tools.checkpoints.folder import look
from conformance.tools.checkpoints.given import Given
from conformance.tools.checkpoints.opening import (
    BUILT_IN,
    Memory,
    cache_bytes,
    fits,
    open_checkpoint,
    read_texts,
    room,
)


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
    monkeypatch.setattr(opening, "available_bytes", lambda: 100)
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


# Texts for prompts: built-in ones, or a user's file -----------------------------------------------


def test_without_a_file_there_are_the_built_in_ones():
    assert read_texts(None) == BUILT_IN
    assert len({text.split()[0] for text in BUILT_IN}) == len(BUILT_IN)


def test_a_file_has_one_text_a_line(tmp_path):
    (tmp_path / "p.txt").write_text("Guten Tag\n\n  \nZwölf Äpfel\n", encoding="utf-8")
    assert read_texts(tmp_path / "p.txt") == ("Guten Tag", "Zwölf Äpfel")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "can't be read: No such"), (b"\xe9\n", "is not UTF-8"), (b" \n", "holds no prompt")],
)
def test_a_bad_file_is_reported(content, message, tmp_path):
    path = tmp_path / "p.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_texts(path)


# Before a checkpoint is loaded: is there memory for it, do its weights fit its config? ------------


def test_what_will_be_needed_is_reported(folder):
    message = str(room(look(folder), "float32"))
    assert message.startswith("3.2e-08 GB of weights and about 0.00216 GB of caches are needed, ")
    assert message.endswith(" available")


def test_too_little_memory_is_refused_and_can_be_forced(folder, monkeypatch):
    monkeypatch.setattr(opening, "available_bytes", lambda: 100)
    with pytest.raises(CheckpointError, match=r"1e-07 GB available; --force runs it all the same"):
        room(look(folder), "float32")
    assert not room(look(folder), "float32", force=True).suffices


def test_where_nobody_knows_the_memory_it_is_tried():
    assert Memory(10**15, 0, None).suffices
    assert not Memory(6, 5, 10).suffices
    assert Memory(5, 5, 10).suffices


def test_caches_are_those_of_the_widest_batch_in_steps_of_256():
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    assert cache_bytes(config, "float32") == 33 * 256 * 2 * 2 * 4 * 8 * 4
    assert cache_bytes({**config, "num_key_value_heads": 1}, "bfloat16") == 33 * 256 * 2 * 2 * 8 * 2
    assert cache_bytes({**config, "head_dim": 16}, "float16") == 33 * 256 * 2 * 2 * 4 * 16 * 2
    assert cache_bytes({"text_config": config}, "float32") == cache_bytes(config, "float32")
    assert cache_bytes({}, "float32") == 0


def test_a_missing_field_is_reported_by_its_name(library, folder):
    library.raises = ModelError(
        "x: loading failed: TypeError: ModelArgs.__init__() missing 1 required positional "
        "argument: 'rms_norm_eps'"
    )
    with pytest.raises(CheckpointError, match=r"config.json: lacks the field 'rms_norm_eps', whic"):
        fits(library, look(folder), trusted=False)


def test_weights_that_do_not_fit_are_reported_with_their_file(library, folder):
    library.raises = ModelError("x: ValueError: Expected shape (1,) for parameter a.weight,\n not")
    with pytest.raises(CheckpointError, match=r"model.safetensors: x: ValueError: .* a.weight, no"):
        fits(library, look(folder), trusted=False)


def test_a_long_list_of_parameters_is_cut(library, folder):
    library.raises = ModelError("Received parameters not in model: " + "layers.0.weight " * 100)
    with pytest.raises(CheckpointError, match=r"\.\.\.$") as raised:
        fits(library, look(folder), trusted=False)
    assert len(str(raised.value)) < 600


def test_a_refusal_stays_one(library, folder):
    library.raises = Unsupported("Model type toy not supported.")
    with pytest.raises(Unsupported, match=r"My Model-8bit: Model type toy not supported"):
        fits(library, look(folder), trusted=False)
