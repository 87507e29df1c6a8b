"""Processors that an older release cannot make from what a family says."""

import contextlib
import json
import shutil
from typing import Any

import mlx.core as mx
import pytest
from checkpoint_folders import make_folder
from mlx_vlm import utils
from transformers import AutoTokenizer, dynamic_module_utils

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Checkpoint, Facts, Family, load_family
from conformance.core.phases import Phases
from conformance.plugins.mlx_vlm import compat, loading
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.mlx_vlm.plugin import FAMILIES
from conformance.reference.subject import Subject

SAID = {
    "Qwen2VLVideoProcessor requires the Torchvision library: torchvision": "torchvision",
    "Unrecognized image processor in /tmp/model": "image_processor_type in its config",
}


@pytest.fixture
def load(monkeypatch):
    """Load a family where transformers refuses its processor with these words."""

    def run(text, *, old):
        def refuse(*_, **__):
            raise ValueError(text)

        monkeypatch.setattr(utils, "load", refuse)
        monkeypatch.setattr(compat, "embeds_together", lambda: old)
        return loading.load(load_family(FAMILIES / "qwen2_vl.json"))

    return run


@pytest.mark.parametrize(("text", "missing"), SAID.items())
def test_a_processor_that_0_4_cannot_make_is_not_supported_there(load, text, missing):
    with pytest.raises(Unsupported, match=f"not supported without {missing}"):
        load(text, old=True)


@pytest.mark.parametrize(("text", "old"), [("no such file", True), *((t, False) for t in SAID)])
def test_any_other_failure_is_one(load, text, old):
    with pytest.raises(ModelError, match=text):
        load(text, old=old)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(
        tmp_path_factory.mktemp("vlm") / "sees", library="mlx_vlm", family="qwen2_vl"
    )


def snapshot(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_it_is_loaded_in_any_dtype_and_left_as_it_was(folder):
    before = snapshot(folder)
    MlxVlm().check(folder)
    family = Family("sees", Facts(library="mlx_vlm"), {}, checkpoint=Checkpoint(str(folder)))
    loaded = loading.load(family, dtype="bfloat16")
    model, processor = loaded.model, loaded.processor
    assert str(model.language_model.model.embed_tokens.weight.dtype).endswith("bfloat16")
    assert processor is not None
    assert not model.training
    assert snapshot(folder) == before


def test_text_becomes_tokens_of_its_own_tokenizer(folder):
    (first, second) = MlxVlm().tokenize(folder, ["The lighthouse", "the"], trusted=False)
    assert len(first) > len(second) > 0
    assert max(first) < 256


def test_a_weight_that_is_not_finite_is_named(folder, tmp_path):
    assert MlxVlm().not_finite(folder) is None
    bad = shutil.copytree(folder, tmp_path / "bad")
    weights = mx.load(str(bad / "model.safetensors"))
    mx.eval(weights)
    name = next(name for name in weights if name.endswith("down_proj.weight"))
    weights[name] = weights[name] * mx.array(float("inf"))
    mx.save_safetensors(str(bad / "model.safetensors"), weights, metadata={"format": "mlx"})
    assert MlxVlm().not_finite(bad).endswith("down_proj.weight")


def test_a_file_that_the_library_would_rewrite_is_refused_untouched(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_vl"}))
    header = {"a.scales": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    before = snapshot(tmp_path)
    with pytest.raises(Unsupported, match=r"model.safetensors holds F8_E8M0, and mlx-vlm rewrites"):
        MlxVlm().check(tmp_path)
    assert snapshot(tmp_path) == before


def test_what_does_not_fit_is_reported_in_the_library_s_words(tmp_path, folder):
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 999}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match=r"loading failed: ValueError: Expected shape"):
        MlxVlm().check(tmp_path)


def test_a_processor_that_trusts_by_itself_runs_no_code_of_the_folder(tmp_path, monkeypatch):
    """``processing_inkling.py`` says ``trust_remote_code=True`` whatever it is passed."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = make_folder(tmp_path / "hostile", library="mlx_vlm", family="inkling")
    mark, path = tmp_path / "mark", folder / "tokenizer_config.json"
    (folder / "evil.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from transformers import PreTrainedTokenizerFast\n"
        "class T(PreTrainedTokenizerFast): ...\n"
    )
    changed = {**json.loads(path.read_text()), "auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}}
    path.write_text(json.dumps(changed))
    family = Family("hostile", Facts(library="mlx_vlm"), {}, "", Checkpoint(str(folder)))
    with contextlib.suppress(ModelError):  # the library may do without that tokenizer, or not
        Subject.load(MlxVlm(), family, dtype="float32", seed=0, phases=Phases())
    assert not mark.exists()
    made: Any = AutoTokenizer
    made.from_pretrained(folder, trust_remote_code=True)
    assert mark.exists(), "the folder is one whose code would be run"
