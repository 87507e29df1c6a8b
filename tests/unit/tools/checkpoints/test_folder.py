"""A folder is looked through by its headers; each kind of damage is one sentence."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from conformance.core.errors import CheckpointError
from conformance.tools.checkpoints.folder import INDEX, look, window_of

CONFIG = {"model_type": "llama", "vocab_size": 8}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    half = {"a.weight": np.ones((4, 2), np.float16), "b.weight": np.ones(3, np.float16)}
    packed = {"c.weight": np.ones((2, 8), np.uint32), "c.scales": np.ones(2, np.float32)}
    save_file(half, made / "model-1.safetensors")
    save_file(packed, made / "model-2.safetensors")
    names = dict.fromkeys(half, "model-1.safetensors") | dict.fromkeys(
        packed, "model-2.safetensors"
    )
    (made / INDEX).write_text(json.dumps({"weight_map": names}))
    return made


def test_what_is_there_is_reported_without_reading_it(folder):
    found = look(folder)
    assert found.files == ("model-1.safetensors", "model-2.safetensors")
    assert set(found.tensors) == {"a.weight", "b.weight", "c.weight", "c.scales"}
    assert found.tensors["c.weight"].shape == (2, 8)
    assert found.dtype == "float16"


def test_bytes_are_those_of_the_working_dtype(folder):
    floating, packed = 8 + 3 + 2, 2 * 8 * 4
    assert look(folder).nbytes("float16") == 2 * floating + packed
    assert look(folder).nbytes("float32") == 4 * floating + packed


def test_without_an_index_all_files_count(folder):
    (folder / INDEX).unlink()
    assert len(look(folder).tensors) == 4


def test_the_digest_is_of_config_and_weights(folder, tmp_path):
    first = look(folder).digest(tmp_path / "memory")
    same = shutil.copytree(folder, tmp_path / "same")
    assert look(same).digest(tmp_path / "memory") == first
    (same / "config.json").write_text(json.dumps({**CONFIG, "rope_theta": 1.0}))
    assert look(same).digest(tmp_path / "memory") != first
    save_file({"b.weight": np.zeros(3, np.float16)}, folder / "model-1.safetensors")
    (folder / INDEX).unlink()
    assert look(folder).digest(tmp_path / "memory") != first


def test_a_digest_is_remembered_and_a_damaged_memory_is_not(folder, tmp_path, monkeypatch):
    memory = tmp_path / "memory"
    first = look(folder).digest(memory)
    (noted,) = memory.iterdir()
    noted.write_text("ff" * 32)
    assert look(folder).digest(memory) == "ff" * 32, "the files were not read again"
    noted.write_text("ff")
    assert look(folder).digest(memory) == first


def cut(folder):
    file = folder / "model-1.safetensors"
    file.write_bytes(file.read_bytes()[:-3])


def cut_in_header(folder):
    file = folder / "model-1.safetensors"
    file.write_bytes(file.read_bytes()[:20])


def emptied(folder):
    (folder / "model-1.safetensors").write_bytes(b"")


def lengthened(folder):
    with (folder / "model-1.safetensors").open("ab") as file:
        file.write(b"more")


def spoilt_header(folder):
    file = folder / "model-1.safetensors"
    data = bytearray(file.read_bytes())
    data[9] = 0
    file.write_bytes(data)


def other_shape(folder):
    file = folder / "model-1.safetensors"
    file.write_bytes(file.read_bytes().replace(b"[4,2]", b"[4,3]"))


def without_a_shard(folder):
    (folder / "model-2.safetensors").unlink()


def without_a_tensor(folder):
    save_file({"a.weight": np.ones((4, 2), np.float16)}, folder / "model-1.safetensors")


def index_without_map(folder):
    (folder / INDEX).write_text("{}")


def index_outside(folder):
    (folder / INDEX).write_text('{"weight_map": {"a.weight": "../model-1.safetensors"}}')


def without_weights(folder):
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").touch()


def nameless(folder):
    (folder / "config.json").write_text('{"vocab_size": 8}')


DAMAGE = {
    cut: "model-1.safetensors: was cut off: it has",
    cut_in_header: "model-1.safetensors: is damaged: it has 20 bytes",
    emptied: "model-1.safetensors: is damaged: it has 0 bytes",
    lengthened: "model-1.safetensors: has data after its tensors",
    spoilt_header: "model-1.safetensors: its header is damaged",
    other_shape: "model-1.safetensors: tensor 'a.weight' of shape [4, 3] and dtype F16",
    without_a_shard: f"model-2.safetensors: is missing, and {INDEX} names it",
    without_a_tensor: "model-1.safetensors: holds no tensor 'b.weight'",
    index_without_map: f"{INDEX}: the field 'weight_map' is missing",
    index_outside: "'weight_map' names '../model-1.safetensors', outside of the folder",
    without_weights: "holds no .safetensors but pytorch_model.bin; weights in other formats are "
    "not read, pickles among them may run any code: convert them",
    nameless: "config.json: the field 'model_type' is missing",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_reported_by_file_and_field(damage, folder):
    look(folder)
    damage(folder)
    with pytest.raises(CheckpointError) as raised:
        look(folder)
    assert DAMAGE[damage] in str(raised.value)
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({}, None),
        ({"sliding_window": None}, None),
        ({"sliding_window": 4096}, 4096),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"text_config": {"sliding_window": 512}}, 512),
        ({"text_config": None}, None),
    ],
)
def test_the_window_is_the_one_that_is_used(config, window):
    assert window_of(config) == window
