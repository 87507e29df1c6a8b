"""A model's Python file beside its config is found by its text; it is not run."""

import pytest

from conformance.core.errors import AdoptionError
from conformance.tools.new_family.model_beside import model_beside

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
