"""What a new model is described by."""

import json

import pytest

from conformance.core.errors import AdoptionError
from conformance.tools.new_family.source import model_beside, read_source

MODULE = """
from dataclasses import dataclass

@dataclass
class ModelArgs:
    hidden_size: int
    num_hidden_layers: int
    model_type: str = "mine"
    taps: tuple = (1, 2)

class Model:
    pass
"""


def write(path, content):
    """A file with this text, or this object as JSON."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_config_alone_is_named_after_its_file(tmp_path):
    path = write(tmp_path / "My Model.json", {"model_type": "llama"})
    source = read_source(path)
    assert source.name == "My-Model"
    assert source.config == {"model_type": "llama"}


def test_a_folder_has_its_processor_and_special_tokens(tmp_path):
    folder = tmp_path / "seer-7b"
    folder.mkdir()
    write(folder / "config.json", {"model_type": "seer"})
    write(folder / "preprocessor_config.json", {"patch_size": 14})
    tokens = {"7": {"content": "<image>"}}
    write(
        folder / "tokenizer_config.json",
        {"added_tokens_decoder": tokens, "eos_token": {"content": "</s>"}, "unk_token": None},
    )
    source = read_source(folder)
    assert source == read_source(folder / "config.json")
    assert source.name == "seer-7b"
    assert source.files == {"preprocessor_config.json": {"patch_size": 14}}
    assert source.texts == {7: "<image>"}
    assert source.roles == {"eos_token": "</s>"}


def test_a_module_gives_its_defaults_and_says_what_it_assumed(tmp_path):
    source = read_source(write(tmp_path / "mine.py", MODULE))
    assert source.config["taps"] == [1, 2]
    assert source.assumed == {"hidden_size": 2048, "num_hidden_layers": 16}
    assert source.model_file == tmp_path / "mine.py"


def test_a_config_beside_a_module_goes_before_its_defaults(tmp_path):
    write(tmp_path / "config.json", {"model_type": "mine", "hidden_size": 512})
    source = read_source(write(tmp_path / "mine.py", MODULE))
    assert source.config["hidden_size"] == 512
    assert source.assumed == {}
    assert source.name == "mine"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{}", "has no 'model_type'"),
        ("x.json", {"model_type": "a", "conformance": {}}, "is a family file already"),
        ("x.json", {"model_type": "a", "model_file": "b.py"}, "model_file names b.py"),
        ("x.py", "import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError"),
        ("x.py", "raise SystemExit(3)", "cannot be imported: SystemExit"),
        ("x.py", "def (", "cannot be imported: SyntaxError"),
        ("x.py", "class Model: pass", "has no class 'ModelArgs'"),
        ("x.py", "class Model: pass\nclass ModelArgs: pass", "ModelArgs is not a dataclass"),
        ("x.py", MODULE.replace("hidden_size", "girth"), "ModelArgs.girth has no default"),
        ("x.py", MODULE.replace("(1, 2)", "print"), "a default of ModelArgs is not JSON"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_file(name, content, message, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises(AdoptionError, match=message) as raised:
        read_source(path)
    assert str(raised.value).startswith(str(path))


def test_nothing_there_is_reported(tmp_path):
    with pytest.raises(AdoptionError, match="no such file or folder"):
        read_source(tmp_path / "nowhere")
    with pytest.raises(AdoptionError, match=r"no config\.json in this folder"):
        read_source(tmp_path)


def test_a_tokenizer_whose_tokens_have_no_text_is_reported(tmp_path):
    write(tmp_path / "config.json", {"model_type": "a"})
    write(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {"7": "<image>"}})
    with pytest.raises(
        AdoptionError, match="added_tokens_decoder: '7' is not a token with content"
    ):
        read_source(tmp_path)


def test_code_that_a_config_names_is_run_only_if_it_is_trusted(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    path = write(tmp_path / "config.json", {"model_type": "a", "model_file": "evil.py"})
    for given in (path, tmp_path):
        with pytest.raises(AdoptionError, match=r"asks for Python code to be run \(evil\.py\)"):
            read_source(given)
    assert read_source(path, trusted=True).model_file == tmp_path / "evil.py"


MODEL = "raise SystemExit('run')\nclass Model: ...\nclass ModelArgs: ...\n"
CONFIG = {"model_type": "novel"}


@pytest.mark.parametrize("name", ["novel.py", "modeling_novel.py", "mine.py", "model.py"])
def test_it_is_called_like_the_model_or_the_config(tmp_path, name):
    (tmp_path / name).write_text(MODEL)
    (tmp_path / "other.py").write_text(MODEL)
    assert model_beside(tmp_path / "mine.json", CONFIG) == tmp_path / name


def test_beside_a_config_json_any_name_will_do(tmp_path):
    (tmp_path / "anything.py").write_text(MODEL)
    assert model_beside(tmp_path / "config.json", CONFIG) == tmp_path / "anything.py"
    assert model_beside(tmp_path / "mine.json", CONFIG) is None


@pytest.mark.parametrize(
    "text",
    ["class Model: ...", "import torch\nclass NovelModel: ...", "class Model(", "", "\0"],
)
def test_what_has_no_model_of_mlx_lm_is_none(tmp_path, text):
    (tmp_path / "modeling_novel.py").write_text(text)
    assert model_beside(tmp_path / "config.json", CONFIG) is None


def test_classes_that_are_imported_count(tmp_path):
    text = "from mlx_lm.models.llama import ModelArgs\nclass Model: ...\n"
    (tmp_path / "novel.py").write_text(text)
    assert model_beside(tmp_path / "mine.json", CONFIG) == tmp_path / "novel.py"


def test_of_several_one_must_be_named(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(MODEL)
    with pytest.raises(AdoptionError, match=r"\(a\.py, b\.py\); name one in the config"):
        model_beside(tmp_path / "config.json", CONFIG)
