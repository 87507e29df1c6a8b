"""The hash of a family: all that weights and prompts follow from, and nothing else."""

import importlib.machinery

import msgspec
import pytest
from miniatures.library import family

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import GoldenError
from conformance.core.family import Recipe
from conformance.scenarios.build import LONG
from conformance.tools.golden.recipe import brief_of, golden_requests, recipe_hash

FAMILY = family()


def facts(**changed):
    return msgspec.structs.replace(FAMILY, facts=msgspec.structs.replace(FAMILY.facts, **changed))


def text_only(parts):
    return tuple(token for part in parts if isinstance(part, tuple) for token in part), ()


def test_it_is_the_same_for_the_same_family():
    assert recipe_hash(FAMILY) == recipe_hash(family())


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": Recipe(logit_scale=1.5)},
        {"tokens": (1, 20)},
        {"seed": 1},
        {"window": 16},
        {"sizes": {"image": ((3, 4), (2, 6))}},
        {"modalities": ("text",)},
        {"module": "other"},
        {"strip": "model."},
        {"beside": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_decides_weights_or_prompts_changes_it(changed):
    assert recipe_hash(facts(**changed)) != recipe_hash(FAMILY)


def test_the_config_changes_it():
    config = {**FAMILY.config, "rope_theta": 1.0}
    assert recipe_hash(msgspec.structs.replace(FAMILY, config=config)) != recipe_hash(FAMILY)


@pytest.mark.parametrize("changed", [{"notes": "new"}, {"quick": True}, {"drafters": {}}])
def test_what_decides_neither_does_not(changed):
    assert recipe_hash(facts(**changed)) == recipe_hash(FAMILY)


def test_a_default_that_is_written_out_does_not():
    assert recipe_hash(facts(weights=Recipe(logit_scale=float("1")))) == recipe_hash(FAMILY)


def test_the_familys_own_model_file_changes_it(tmp_path):
    own = msgspec.structs.replace(facts(model_file="m.py"), path=str(tmp_path / "toy.json"))
    (tmp_path / "m.py").write_text("one")
    one = recipe_hash(own)
    (tmp_path / "m.py").write_text("two")
    assert recipe_hash(own) != one
    (tmp_path / "m.py").unlink()
    with pytest.raises(GoldenError, match=r"m\.py: cannot read the model file"):
        recipe_hash(own)


def test_so_does_a_module_of_this_package_that_it_imports(tmp_path, monkeypatch):
    own = msgspec.structs.replace(facts(model_file="m.py"), path=str(tmp_path / "toy.json"))
    (tmp_path / "m.py").write_text("from conformance.shared.parts import Tower\n")
    (tmp_path / "parts.py").write_text("one")
    spec = importlib.machinery.ModuleSpec("parts", None, origin=str(tmp_path / "parts.py"))
    found = {"conformance.shared.parts": spec}
    monkeypatch.setattr("importlib.util.find_spec", found.get)
    one = recipe_hash(own)
    (tmp_path / "parts.py").write_text("two")
    assert recipe_hash(own) != one


def test_requests_go_from_two_tokens_to_past_the_window():
    wide = golden_requests(brief_of(facts(window=32), text_only))
    assert [len(r.prompt) for r in wide[:4]] == [2, 5, 11, 2 * 32 + 3]
    assert [len(r.prompt) for r in golden_requests(brief_of(FAMILY, text_only))][3] == LONG


def test_each_kind_of_media_has_a_request():
    brief = brief_of(facts(modalities=("text", "image", "video")), text_only)
    brief = type(brief)(**{**vars(brief), "sizes": {"image": ((3, 3),), "video": ((2, 2, 2),)}})
    names = [r.request_id for r in golden_requests(brief)]
    assert names == ["two", "short", "medium", "long", "image", "video"]


def test_requests_may_not_depend_on_the_oracle():
    brief = brief_of(FAMILY, text_only)
    with pytest.raises(GoldenError, match="do not depend on a single stream"):
        brief.solo(golden_requests(brief)[0], EngineOptions())
