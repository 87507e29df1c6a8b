"""Before a checkpoint is loaded: is there memory for it, do its weights fit its config?"""

import pytest

from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.tools.checkpoints import preflight
from conformance.tools.checkpoints.folder import look
from conformance.tools.checkpoints.preflight import Memory, cache_bytes, fits, room


def test_what_will_be_needed_is_reported(folder):
    message = str(room(look(folder), "float32"))
    assert message.startswith("3.2e-08 GB of weights and about 0.00216 GB of caches are needed, ")
    assert message.endswith(" available")


def test_too_little_memory_is_refused_and_can_be_forced(folder, monkeypatch):
    monkeypatch.setattr(preflight, "available_bytes", lambda: 100)
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
