"""Every kind says how it is made and fed, and what its rows come from or go to."""

import pytest
from mlx_lm.models import cache

from conformance.power.caches.discovery import discover
from conformance.power.caches.kinds.kind import Kind


def test_a_kind_without_all_methods_cannot_be_made():
    silent = type("Silent", (Kind,), {"new": lambda self, padding: None})
    with pytest.raises(TypeError, match=r"feed.*partner"):
        silent(cache, cache.KVCache)


def test_the_partner_of_a_batch_is_a_single_stream_and_the_other_way_round():
    for kind in (kind for found in discover() for kind in found.kinds):
        if kind.single and not kind.has("merge"):
            continue
        partner = kind.partner()
        assert partner.single != kind.single, kind
        assert partner.partner().cls is kind.cls or kind.cls.__name__.startswith("Buffered"), kind
