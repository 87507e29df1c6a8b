"""Defects of the counts of messages, and of the limit of a request's tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_vlm.server import generation
from mlx_vlm.server.schemas import AnthropicUsage

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
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


@_fault("S101.context-of-the-prompt-alone", kills=("served_options/context",))
def context_of_the_prompt_alone(hits: Hits) -> Patch:
    """The context bounds the prompt of a request, and not its answer."""

    def check(right: Right, prompt: int, answer: int) -> None:
        hits.hit_if(answer)
        right(prompt, 0)

    return wrap(generation, "_check_configured_context_budget", check)


@_fault("S102.context-is-a-token-short", kills=("served_options/context",))
def context_is_a_token_short(hits: Hits) -> Patch:
    """A request whose last token takes the last place of the context is refused."""

    def check(right: Right, prompt: int, answer: int) -> None:
        hits.hit()
        right(prompt, answer + 1)

    return wrap(generation, "_check_configured_context_budget", check)
