"""A run leaves nothing on the model, whatever it put there."""

import functools

import mlx.core as mx
import numpy as np
from mlx import nn

from conformance.core.family import load_family
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm.inputs import compose
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.plugin import FAMILIES


def test_fresh_puts_back_what_a_run_left(model):
    lm = model.language_model
    before = getattr(lm, "_rope_deltas", None)
    lm._rope_deltas = mx.array([[7]])
    lm.something_new = [1, 2]
    model.model._mask_of_last_time = mx.zeros((2, 2))
    assert {"_rope_deltas", "something_new", "_mask_of_last_time"} <= set(model.changed())
    model.fresh()
    assert model.changed() == ()
    assert getattr(lm, "_rope_deltas", None) is before
    assert not hasattr(lm, "something_new")


def test_fresh_puts_back_changed_lists(model):
    lm = model.language_model
    lm.layers.append(lm.layers[0])
    count = len(lm.layers)
    model.fresh()
    assert len(lm.layers) == count - 1


def test_fresh_keeps_the_parameters(model):
    weight = model.language_model.model.embed_tokens.weight
    assert model.fresh().language_model.model.embed_tokens.weight is weight


def test_fresh_clears_cached_functions(model):
    calls = []

    @functools.lru_cache
    def cached(x):
        calls.append(x)

    model._cached_functions.append(cached)
    cached(1)
    model.fresh()
    cached(1)
    model._cached_functions.remove(cached)
    assert calls == [1, 1]


def test_a_model_without_a_language_model_is_put_back_too(model):
    class Drafter(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

    drafter = LoadedModel(Drafter(), None, model.family, dtype="float32", seed=0)
    drafter.model.seen = 3
    assert drafter.fresh().model.seen == 0


def test_there_is_no_pass_without_a_cache_after_an_image_that_the_model_wrote(library, model):
    low, high = model.family.tokens
    ask = Request("a", (low, low + 1), 2)
    assert library.stateless(model, ask, (low,)) is not None
    assert library.stateless(model, ask, (low, high)) is None


def test_what_an_image_shows_it_shows_to_generated_tokens_too(library):
    family = load_family(FAMILIES / "mllama.json")
    crossing = library.load(family, dtype="float32", seed=0)
    image = Media("image", (16, 16))
    (short, media), (long, same) = (
        compose(crossing, [(5, 6, 7), image, rest]) for rest in ((9, 8), (9, 8, 11))
    )
    after = library.stateless(crossing, Request("a", short, 2, media=media), (11,))
    expected = library.stateless(crossing, Request("a", long, 2, media=same), ())
    np.testing.assert_allclose(after, expected, atol=1e-4)
