"""Defects that both libraries had alike: what they change, and where they count as in effect."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from conformance.core.faults.declaration import Hits
from conformance.power.faults.shared_faults import (
    differs,
    kept_by_place,
    length_as_stop,
    masked_with,
    of_row_0,
    ring_as_line,
    rotated_at,
)


class Batch:
    def __init__(self, entries):
        self.entries = entries

    def filter(self, keep):
        if isinstance(self.entries, list):
            self.entries = [self.entries[row] for row in keep]
        elif self.entries is not None:
            self.entries = self.entries[mx.array(keep)] if keep else None


@pytest.mark.parametrize(
    ("entries", "keep", "left", "hits"),
    [
        ([5, 6, 7], [1, 2], [5, 6], 1),
        ([5, 6, 7], [0, 1], [5, 6], 0),
        ([5, 5, 7], [1], [5], 0),
        ([5, 6], [], [], 0),
        ([], [], [], 0),
    ],
)
def test_the_first_entries_of_a_list_stay(entries, keep, left, hits):
    counted, batch = Hits(), Batch(entries)
    with kept_by_place(Batch, "entries", counted):
        batch.filter(keep)
    assert (batch.entries, counted.count) == (left, hits)


def test_the_first_entries_of_an_array_stay():
    hits, batch = Hits(), Batch(mx.array([5, 6, 7]))
    with kept_by_place(Batch, "entries", hits):
        batch.filter([2])
        assert (batch.entries.tolist(), hits.count) == ([5], 1)
        batch.filter([])
        assert batch.entries is None
        batch.filter([0])
    assert hits.count == 1


@pytest.mark.parametrize(("offsets", "hits"), [([3, 5], 1), ([3, 3], 0)])
def test_rows_are_rotated_elsewhere(offsets, hits):
    x = mx.random.normal((2, 1, 1, 8))

    def rope(offset):
        return mx.fast.rope(x, 8, traditional=False, base=1e4, scale=1.0, offset=offset)

    counted = Hits()
    with rotated_at(lambda _, offset: of_row_0(offset), counted):
        wrong = rope(mx.array(offsets))
        assert not differs(rope(3), wrong)  # one number is left alone
    assert counted.count == hits
    assert differs(rope(mx.array(offsets)), wrong) is bool(hits)


@pytest.mark.parametrize(("seen", "hits"), [(1, 1), (2, 0)])
def test_what_is_masked_gets_a_score(seen, hits):
    k, v = mx.zeros((1, 1, 2, 4)), mx.array([0.0, 8.0]).reshape(1, 1, 2, 1)
    mask = (mx.arange(2) < seen).reshape(1, 1, 1, 2)

    def attend():
        out = mx.fast.scaled_dot_product_attention(
            mx.zeros((1, 1, 1, 4)), k, mx.broadcast_to(v, k.shape), scale=1.0, mask=mask
        )
        return round(out[0, 0, 0, 0].item(), 3)

    right, counted = attend(), Hits()
    with masked_with(1e-7, counted):
        assert attend() == 4.0
    assert counted.count == hits
    assert attend() == right == 4.0 * (seen - 1)


class Ring:
    def __init__(self, rotated, index):
        self.keys = mx.zeros((1, 1, 4, 2))
        self.rotated, self._idx = rotated, index

    def extract(self, row):
        return row, self.rotated, self._idx


@pytest.mark.parametrize(
    ("rotated", "index", "seen", "hits"),
    [(True, 2, (0, False, 4), 1), (True, 4, (0, True, 4), 0), (False, 2, (0, False, 2), 0)],
)
def test_a_ring_is_extracted_as_a_line(rotated, index, seen, hits):
    counted, ring = Hits(), Ring(rotated, index)
    with ring_as_line(Ring, counted):
        assert ring.extract(0) == seen
    assert ring.extract(0) == (0, rotated, index)
    assert counted.count == hits


def test_only_those_that_reached_their_limit_are_reported_as_stopped():
    hits = Hits()
    responses = [SimpleNamespace(finish_reason=reason) for reason in (None, "length", "stop")]
    length_as_stop(responses, hits)
    assert [response.finish_reason for response in responses] == [None, "stop", "stop"]
    assert hits.count == 1
