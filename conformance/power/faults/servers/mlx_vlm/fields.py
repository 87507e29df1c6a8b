"""Defects of the counts of messages."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_vlm.server.schemas import AnthropicUsage

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server endpoints",
    source="issue trackers: other endpoints of several servers",
)


@_fault("S95.kept-tokens-counted-twice", kills=("served_endpoints/kept",))
def kept_tokens_counted_twice(hits: Hits) -> Patch:
    """The input_tokens of a message hold the kept tokens, which are counted besides."""

    def usage(found: Any, *_: Any, **__: Any) -> Any:
        kept = found.cache_read_input_tokens or 0
        hits.hit_if(kept)
        return found.model_copy(update={"input_tokens": found.input_tokens + kept})

    return after(AnthropicUsage, "from_metrics", usage)
