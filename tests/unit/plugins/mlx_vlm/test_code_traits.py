"""Traits of mlx-vlm's models by which their defects may be known ones."""

from types import SimpleNamespace

import pytest

from conformance.core.faults.traits import code_traits
from conformance.run.registry import build_registry

KINDS = ("uneven:", "partial:", "listed:", "longer:", "pieces:", "unfilled:", "keys:", "uncut:")


@pytest.fixture(scope="module")
def registry():
    return build_registry()


@pytest.fixture
def traits_of(registry):
    def of(name):
        library = registry.libraries["mlx_vlm"]
        family = registry.families["mlx_vlm", name]
        model = library.load(family, dtype="float32", seed=0)
        return code_traits(SimpleNamespace(family=family, library=library, model=model))

    return of


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("llama", set()),
        ("phi", {"pieces:refused"}),
        ("paligemma", {"pieces:forbidden", "uncut:prompt", "uneven:image"}),
        ("deepseek_v3", {"keys:uneven"}),
        ("longcat_flash_ngram", {"unfilled:ArraysCache"}),
        ("gemma3", {"uneven:image"}),
        ("fastvlm", {"longer:image"}),
        ("deepseekocr", {"listed:pixels", "uneven:image"}),
        ("qwen3_vl", {"listed:embeddings", "partial:image", "partial:video"}),
        ("granite4_vision", {"partial:image"}),
        ("glm4v", set()),
    ],
)
def test_what_prompts_hand_to_the_batch_generator(traits_of, name, some):
    assert {trait for trait in traits_of(name) if trait.startswith(KINDS)} == some


def test_parts_arguments_caches_and_processors_are_named(traits_of):
    assert {"part:rope_utils.SuScaledRoPE", "part:phi3_v.Attention"} <= traits_of("phi3_v"), (
        "the family's own file extends the library's classes"
    )
    crossing = traits_of("mllama")
    assert {"argument:cross_attention_states", "processor:MllamaProcessor"} <= crossing
    assert "argument:self" not in crossing
    assert {"last:CacheList", "cache:CacheList"} <= traits_of("falcon_h1")


def test_nothing_of_the_prompts_is_left_on_the_model(registry):
    library = registry.libraries["mlx_vlm"]
    model = library.load(registry.families["mlx_vlm", "qwen2_vl"], dtype="float32", seed=0)
    assert library.code_traits(model)
    assert model.changed() == ()
