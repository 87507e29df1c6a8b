"""TurboQuant's codecs are near what they encode, and what a cache counts is compared."""

from functools import partial

import pytest
from mlx_vlm import turboquant

from conformance.power.caches.cache_defects import explain, load_cache_defects
from conformance.power.caches.discovery import discover
from conformance.power.caches.sequences import explore

NAME = "mlx_vlm.BatchTurboQuantKVCache"
FOUND = {found.name: found for found in discover()}
DEFECTS = load_cache_defects()


def turned_back_by_other_signs(patch):
    right = turboquant._rht_inverse
    patch.setattr(turboquant, "_rht_inverse", lambda x, signs, *more: right(x, -signs[::-1], *more))


def nbytes_of_keys_alone(patch):
    patch.setattr(
        turboquant.BatchTurboQuantKVCache,
        "nbytes",
        property(lambda self: turboquant._state_nbytes(self.keys)),
    )


@pytest.mark.parametrize(
    ("plant", "what"),
    [(turned_back_by_other_signs, "contents"), (nbytes_of_keys_alone, "nbytes")],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_planted_fault_is_found(plant, what, monkeypatch):
    plant(monkeypatch)
    known = partial(explain, DEFECTS)
    failure = explore(FOUND[NAME], examples=6, known=known, shrink=False).failure
    assert failure is not None
    assert failure.problem.what == what
