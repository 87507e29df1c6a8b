"""What a mask lets a query see."""

import mlx.core as mx

from conformance.power.caches.kinds.visibility import decoded


def test_causal_is_the_one_mask_that_has_a_name():
    assert decoded("causal", rows=1, width=2, columns=3).tolist() == [[[1, 1, 0], [1, 1, 1]]]
    said = decoded("window", rows=1, width=2, columns=3)
    assert said == "a mask that no attention takes: 'window'"


def test_a_mask_of_another_shape_does_not_fit():
    said = decoded(mx.ones((2, 4)), rows=1, width=2, columns=3)
    assert said == "a mask of (2, 4) for 1 rows, 2 queries and 3 keys"
