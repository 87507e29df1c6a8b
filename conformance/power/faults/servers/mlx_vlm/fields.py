"""Defects of counts of messages, of fields that look neutral, and of the context's end."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_vlm.server import generation, openai, request_normalization
from mlx_vlm.server.responses_state import response_store
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


@_fault("S98.zero-counts-as-left-out", kills=("served_options/defaults",))
def zero_counts_as_left_out(hits: Hits) -> Patch:
    """A field of 0, such as a temperature, counts as left out: the checkpoint's own is taken."""

    def resolved(right: Right, config: Any, **fields: Any) -> Any:
        hits.hit_if(0 in fields.values())
        return right(config, **{name: value or None for name, value in fields.items()})

    return wrap(request_normalization, "resolve_sampling_defaults", resolved)


@_fault("S100.responses-of-one-turn", kills=("served_endpoints/chained",))
def responses_of_one_turn(hits: Hits) -> Patch:
    """A response goes on from the one before it alone, and not from what that one goes on from."""

    def before(right: Right, name: str | None) -> Any:
        last = response_store.get(name or "")
        if last is None or not last.previous_response_id:
            return right(name)
        hits.hit()
        return [*last.input_items, *last.output_items]

    return wrap(openai, "_response_chain_items", before)


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


@_fault("S106.forbidden-tools-are-written", kills=("served_endpoints/tools",))
def forbidden_tools_are_written(hits: Hits) -> Patch:
    """Tools whose use a request forbids are written into its prompt."""

    def prepare(right: Right, messages: Any, tools: Any, choice: Any) -> Any:
        found, left, chosen = right(messages, tools, choice)
        hits.hit_if(tools and left is None)
        return found, left or tools, chosen

    return wrap(openai, "_prepare_chat_tool_choice", prepare)
