"""Defects of counts of messages, of fields that look neutral, and of the context's end."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from mlx_vlm.server import anthropic, generation, openai, request_normalization
from mlx_vlm.server.responses_state import response_store
from mlx_vlm.server.schemas import AnthropicUsage, OpenAIResponse

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


_TURNS = 3


@_fault("S108.responses-of-three-turns", kills=("served_endpoints/chained",))
def responses_of_three_turns(hits: Hits) -> Patch:
    """A response goes on from the last three alone of those before it."""

    def before(right: Right, name: str | None) -> Any:
        found, at = list[Any](), name
        for _ in range(_TURNS):
            if (last := response_store.get(at or "")) is not None:
                found = [*last.input_items, *last.output_items, *found]
                at = last.previous_response_id
        whole = right(name)
        hits.hit_if(len(found) < len(whole))
        return found

    return wrap(openai, "_response_chain_items", before)


@_fault("S109.forbidden-tools-of-messages-are-written", kills=("served_endpoints/tools",))
def forbidden_tools_of_messages_are_written(hits: Hits) -> Patch:
    """A message that forbids its tools leaves their use to the model."""

    def choice(found: Any, *_: Any) -> Any:
        hits.hit_if(found == "none")
        return "auto" if found == "none" else found

    return after(anthropic, "_anthropic_tool_choice_to_openai", choice)


@_fault("S110.prompts-counted-without-tools", kills=("served_endpoints/tools",))
def prompts_counted_without_tools(hits: Hits) -> Patch:
    """The endpoint that counts the tokens of a prompt leaves its tools out."""
    counting = anthropic.anthropic_count_tokens_endpoint.__code__

    def internal(right: Right, asked: Any) -> Any:
        messages, images, tools, choice = right(asked)
        counted = any(frame.frame.f_code is counting for frame in inspect.stack(0))
        hits.hit_if(counted and tools)
        return messages, images, None if counted else tools, choice

    return wrap(anthropic, "_anthropic_messages_to_internal", internal)


@_fault("S111.response-stored-unasked", kills=("served_endpoints/chained",))
def response_stored_unasked(hits: Hits) -> Patch:
    """A response is stored, and goes on, although its request says that it is not to be."""

    def store(right: Right, response: OpenAIResponse, *rest: Any) -> None:
        hits.hit_if(response.store is False)
        right(response.model_copy(update={"store": True}), *rest)

    return wrap(openai, "_store_response", store)


def _of_checkpoint(hits: Hits, name: str) -> Patch:
    """A default of the checkpoint counts as left out."""

    class Without:
        def __init__(self, config: Any) -> None:
            self.config = config

        def __getattr__(self, asked: str) -> Any:
            found = getattr(self.config, asked, None)
            hits.hit_if(asked == name and found is not None)
            return None if asked == name else found

    def resolved(right: Right, config: Any, **fields: Any) -> Any:
        return right(Without(config), **fields)

    return wrap(request_normalization, "resolve_sampling_defaults", resolved)


@_fault("S112.nucleus-of-a-checkpoint-ignored", kills=("served_options/defaults_nucleus",))
def nucleus_of_a_checkpoint_ignored(hits: Hits) -> Patch:
    """A request that leaves top_p out is sampled without the checkpoint's."""
    return _of_checkpoint(hits, "top_p")


@_fault("S112.checkpoint-is-sampled-after-all", kills=("served_options/defaults_unsampled",))
def checkpoint_is_sampled_after_all(hits: Hits) -> Patch:
    """The temperature of a checkpoint that says not to sample is used."""
    return _of_checkpoint(hits, "do_sample")
