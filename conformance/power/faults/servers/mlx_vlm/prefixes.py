"""Defects of kept prefixes: pictures and tenants that a key takes for one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_vlm import apc
from mlx_vlm.server import anthropic, openai

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server prefixes",
    source="issue trackers: pictures that share an answer",
    # Of other models the server reuses no prompt with a picture.
    needs=("modality:image", "cache:ArraysCache|cache:RotatingKVCache"),
    kills=("served_image_prefixes/one_by_one",),
)


def _hashed(hits: Hits, read: Callable[[mx.array], mx.array]) -> Patch:
    """A picture's key is made of what is read of its values."""

    def key(right: Right, values: mx.array) -> int:
        hits.hit()
        found: int = right(read(values))
        return found

    return wrap(apc, "_tensor_content_hash", key)


@_fault("S81.picture-by-its-light-and-dark")
def picture_by_its_light_and_dark(hits: Hits) -> Patch:
    """A picture's key says of each value whether it is light or dark."""
    return _hashed(hits, lambda values: values > 0)


@_fault("S81.picture-by-every-second-value")
def picture_by_every_second_value(hits: Hits) -> Patch:
    """A picture's key is made of every second value."""
    return _hashed(hits, lambda values: values.reshape(-1)[1::2])


_LETTERS = 40


@served_fault(
    "S99.tenant-by-its-first-letters",
    engine="mlx_vlm_server",
    fault_class="server prefixes",
    source="issue trackers: tenants that share what is kept",
    kills=("served_prefixes/tenants",),
)
def tenant_by_its_first_letters(hits: Hits) -> Patch:
    """What is kept of a prompt is found by the first letters of its tenant's name."""

    def key(right: Right, tenant: str | None, *rest: object) -> object:
        cut = tenant and str(tenant)[:_LETTERS]
        hits.hit_if(cut != tenant)
        return right(cut, *rest)

    return wrap(apc, "tenant_scoped_hash", key)


@served_fault(
    "S113.tenant-of-one-header",
    engine="mlx_vlm_server",
    fault_class="server prefixes",
    source="issue trackers: tenants that share what is kept",
    kills=("served_prefixes/tenants",),
)
def tenant_of_one_header(hits: Hits) -> Patch:
    """Of the two headers that may name a tenant, one is not read."""

    def read(right: Right, request: Any, *rest: Any) -> Any:
        own = request.headers.get("x-apc-tenant")
        hits.hit_if(own)
        return "default" if own else right(request, *rest)

    return together(
        *(wrap(module, "_read_tenant_id", read) for module in (openai, anthropic)),
    )


@served_fault(
    "S132.block-without-those-before-it",
    engine="mlx_vlm_server",
    fault_class="server prefixes",
    source="issue trackers: tenants that share what is kept",
    kills=("served_prefixes/one_by_one",),
)
def block_without_those_before_it(hits: Hits) -> Patch:
    """A block of a kept prompt is found by its own tokens, whatever comes before them."""

    def key(right: Right, parent: int, *args: Any) -> int:
        hits.hit_if(parent != apc.SEED_PARENT_HASH)
        found: int = right(apc.SEED_PARENT_HASH, *args)
        return found

    return wrap(apc, "_hash_tokens", key)
