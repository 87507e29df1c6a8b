"""A checkpoint folder without a library, and a library that reads it as configured."""

import json

import numpy as np
import pytest
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching
from safetensors.numpy import save_file

from conformance.core.family import Facts, Family
from conformance.run.registry import Registry
from conformance.scenarios import LADDER

CONFIG = {
    "model_type": "toy",
    "vocab_size": VOCAB,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
}


class Reads(ToyLibrary):
    """A token for each word, by its length; ``raises`` what does not fit, or is ``garbled``."""

    raises = garbled = None

    def check(self, folder, *, trusted=False):
        if self.raises is not None:
            raise self.raises

    def tokenize(self, folder, texts, *, trusted=False):
        if self.garbled is not None:
            raise self.garbled
        return tuple(tuple(len(word) for word in text.split()) for text in texts)


@pytest.fixture
def library():
    return Reads()


@pytest.fixture
def registry(library):
    facts = Facts(library="toy", positions=False, bidirectional_prompt=True, window=4)
    return Registry(
        libraries={"toy": library},
        families={("toy", "toy"): Family("toy", facts, {"vocab_size": VOCAB})},
        engines={"right": ContinuousBatching},
        scenarios={scenario.name: scenario for scenario in LADDER},
        faults={},
        plugins=(),
    )


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "My Model-8bit"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "tokenizer.json").write_text("{}")
    save_file({"a.weight": np.ones((4, 2), np.float16)}, made / "model.safetensors")
    return made


@pytest.fixture
def change(folder):
    """Change fields of the config; ``None`` takes one out."""

    def changed(**fields):
        merged = {**CONFIG, **fields}
        kept = {name: value for name, value in merged.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return changed
