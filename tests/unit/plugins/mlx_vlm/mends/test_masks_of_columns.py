"""In float16, which the suite does not play, a query of padding attends to something."""

import mlx.core as mx
from mlx_vlm.models.inkling import language

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_vlm.mends.masks_of_columns import padding_attends_to_something

TOKENS, PADDING = 4, 2


def mask(dtype):
    rel, proj = mx.zeros((1, TOKENS, 1, 2), dtype), mx.zeros((2, TOKENS), dtype)
    padding = mx.array([PADDING])
    return language.banded_additive_mask(rel, proj, 0, TOKENS, 0, TOKENS, left_padding=padding)


def blind(found):
    return (found == -mx.inf).all(axis=-1).sum().item()


def test_no_query_is_left_without_a_key_and_the_others_keep_their_mask():
    before = mask(mx.float16)
    assert blind(before) == PADDING, "the library does it right: the mend can go"
    hits = Hits()
    with padding_attends_to_something.repair(hits):
        after = mask(mx.float16)
        wide = mask(mx.float32)
    assert hits.count
    assert blind(after) == 0
    assert mx.array_equal(after[:, :, PADDING:], before[:, :, PADDING:])
    assert mx.array_equal(wide, mask(mx.float32))
