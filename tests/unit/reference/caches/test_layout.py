"""Where rows stand in the padded batch, and what their queries see."""

import mlx.core as mx
import numpy as np

from conformance.reference.caches import layout
from conformance.reference.caches.layout import Row

ROWS = (Row(kept=2, new=1), Row(kept=0, new=3))


def shown(mask):
    """Rows of ``x`` and ``.``, one string for each query."""
    table = np.array(mask)[:, 0]
    return [["".join(".x"[int(seen)] for seen in query) for query in row] for row in table]


def test_each_query_sees_its_own_row_up_to_itself():
    assert shown(layout.mask(ROWS, 3, None)) == [["xxx", "xxx", "xxx"], ["x..", "xx.", "xxx"]]


def test_a_window_is_counted_in_columns_of_the_row():
    assert shown(layout.mask(ROWS, 3, 2)) == [[".xx", ".xx", ".xx"], ["x..", "xx.", ".xx"]]


def test_padded_keys_are_masked():
    mask = layout.mask((Row(4, 1), Row(0, 1)), 1, None)
    assert shown(mask) == [["xxxxx"], ["x...."]]


def test_a_padded_query_sees_something_so_that_nothing_is_undefined():
    for window in (None, 1, 2):
        assert np.array(layout.mask(ROWS, 9, window)).any(axis=-1).all()


def test_padding_is_put_behind_and_is_zero():
    x = mx.ones((1, 2, 3, 4))
    padded = np.array(layout.pad(x, 5))
    assert padded.shape == (1, 2, 5, 4)
    assert (padded[:, :, :3] == 1).all()
    assert (padded[:, :, 3:] == 0).all()
    assert layout.width(ROWS) == 3


def test_a_row_of_its_own_does_not_keep_the_batch():
    batch = mx.ones((4, 256))
    mx.eval(batch)
    row = layout.own(batch, 3)
    mx.eval(row)
    before = mx.get_active_memory()
    del batch
    assert before - mx.get_active_memory() >= 4 * 256 * 4
    assert row.shape == (1, 256)
