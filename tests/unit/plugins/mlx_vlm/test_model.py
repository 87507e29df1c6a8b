"""A run leaves nothing on the model, whatever it put there."""

import mlx.core as mx


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
