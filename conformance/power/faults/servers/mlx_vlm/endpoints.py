"""Faults of the endpoints besides that of chats: what ended an answer, counts, order of events."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mlx_vlm.server import anthropic, generation, openai
from mlx_vlm.server.schemas import AnthropicUsage, OpenAIUsage

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server endpoints",
    source="issue trackers: other endpoints of several servers",
    kills=("served_endpoints",),
)


@_fault("S67.limit-said-to-be-the-end-of-a-turn")
def limit_said_to_be_the_end_of_a_turn(hits: Hits) -> Patch:
    """A message that the limit ends has the stop_reason end_turn."""

    def reason(found: str, *_: Any, **__: Any) -> str:
        hits.hit_if(found == "max_tokens")
        return "end_turn" if found == "max_tokens" else found

    return after(anthropic, "_anthropic_stop_reason", reason)


@_fault("S68.part-of-a-message-not-closed")
def part_of_a_message_not_closed(hits: Hits) -> Patch:
    """A stream of a message lacks the events that close its parts."""

    def event(right: Right, name: str, payload: Any) -> Any:
        hits.hit_if(name == "content_block_stop")
        return "" if name == "content_block_stop" else right(name, payload)

    return wrap(anthropic, "_sse_event", event)


@_fault("S69.output-tokens-off-by-one")
def output_tokens_off_by_one(hits: Hits) -> Patch:
    """The output_tokens of a message in one piece are one too few."""

    def usage(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(found.output_tokens)
        return found.model_copy(update={"output_tokens": max(0, found.output_tokens - 1)})

    return after(AnthropicUsage, "from_metrics", usage)


@_fault("S70.incomplete-response-completed")
def incomplete_response_completed(hits: Hits) -> Patch:
    """A stream of a response that the limit ends is said to be completed."""

    def event(right: Right, name: str, payload: Any) -> Any:
        if name == "response.incomplete":
            hits.hit()
            name = "response.completed"
            response = {**payload["response"], "status": "completed", "incomplete_details": None}
            payload = {"type": name, "response": response}
        return right(name, payload)

    return wrap(openai, "_response_sse_event", event)


@_fault("S71.total-of-a-response-without-its-input")
def total_of_a_response_without_its_input(hits: Hits) -> Patch:
    """The total_tokens of a response are its output_tokens."""

    def usage(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit()
        return found.model_copy(update={"total_tokens": found.output_tokens})

    return after(OpenAIUsage, "from_metrics", usage)


@_fault("S82.last-block-of-a-system-message-alone")
def last_block_of_a_system_message_alone(hits: Hits) -> Patch:
    """Of a message's system in several blocks the last is used."""

    def system(right: Right, blocks: Any) -> Any:
        several = isinstance(blocks, list) and len(blocks) > 1
        hits.hit_if(several)
        return right(blocks[-1:] if several else blocks)

    return wrap(anthropic, "_anthropic_system_text", system)


@_fault("S82.stop-sequence-not-named")
def stop_sequence_not_named(hits: Hits) -> Patch:
    """A message that a stop sequence ends is said to have ended its turn."""

    def applied(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(found[1])
        return found[0], None

    return after(anthropic, "_apply_stop_sequences", applied)


@_fault("S143.messages-of-one-id")
def messages_of_one_id(hits: Hits) -> Patch:
    """All streamed messages have one id."""

    def event(right: Right, name: str, payload: Any) -> Any:
        hits.hit_if(name == "message_start")
        return right(name, _with_id(payload) if name == "message_start" else payload)

    def _with_id(payload: Any) -> Any:
        return {**payload, "message": {**payload["message"], "id": "msg_1"}}

    return wrap(anthropic, "_sse_event", event)


@_fault("S145.response-stored-as-the-one-before")
def response_stored_as_the_one_before(hits: Hits) -> Patch:
    """Who asks for a stored response gets what was answered before it."""
    stored: list[Any] = []

    def store(right: Right, response: Any, *rest: Any) -> None:
        stored.append(response)
        hits.hit_if(stored[1:])
        before = stored[-2:][0].model_copy(update={"id": response.id, "store": response.store})
        right(before, *rest)

    return wrap(openai, "_store_response", store)


_of_budgets = partial(_fault, kills=("served_tools/budgets",))


@_of_budgets("S85.budget-of-the-request-before")
def budget_of_the_request_before(hits: Hits) -> Patch:
    """A request has the thinking budget of the one that had one before it."""
    found: list[int] = []

    def make(right: Right, self: Any, args: Any, input_ids: Any) -> Any:
        if args.thinking_budget is None:
            return right(self, args, input_ids)
        found.append(args.thinking_budget)
        hits.hit_if(found[-2:-1] not in ([], found[-1:]))
        return right(self, replace(args, thinking_budget=found[-2:][0]), input_ids)

    return wrap(generation.ResponseGenerator, "_make_thinking_budget_criteria", make)


@_of_budgets("S85.budget-of-a-message-ignored")
def budget_of_a_message_ignored(hits: Hits) -> Patch:
    """A message has no thinking budget, as its own field for it is not read."""

    def derived(request: Any, *_: Any) -> Any:
        hits.hit_if(request.thinking_budget is not None)
        request.thinking_budget = None
        return request

    return after(anthropic, "_anthropic_request_with_derived_fields", derived)


_of_calls = partial(_fault, kills=("served_tools",))


@_of_calls("S86.call-said-to-end-the-turn")
def call_said_to_end_the_turn(hits: Hits) -> Patch:
    """A message that calls tools has the stop_reason end_turn."""

    def reason(found: str, *_: Any, **__: Any) -> str:
        hits.hit_if(found == "tool_use")
        return "end_turn" if found == "tool_use" else found

    return after(anthropic, "_anthropic_stop_reason", reason)


@_of_calls("S86.blocks-of-one-index")
def blocks_of_one_index(hits: Hits) -> Patch:
    """All blocks of a streamed message have the index of the first."""

    def event(right: Right, name: str, payload: Any) -> Any:
        hits.hit_if(payload.get("index"))
        return right(name, {**payload, "index": 0} if "index" in payload else payload)

    return wrap(anthropic, "_sse_event", event)


@_of_calls("S86.arguments-of-the-first-call")
def arguments_of_the_first_call(hits: Hits) -> Patch:
    """All calls of a streamed message have the arguments of its first one."""
    first: list[str] = []

    def event(right: Right, name: str, payload: Any) -> Any:
        if name == "message_start":
            first.clear()
        delta = payload.get("delta") or {}
        if "partial_json" in delta:
            first.append(delta["partial_json"])
            hits.hit_if(first[1:])
            payload = {**payload, "delta": {**delta, "partial_json": first[0]}}
        return right(name, payload)

    return wrap(anthropic, "_sse_event", event)
