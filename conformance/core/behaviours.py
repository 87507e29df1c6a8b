"""What users expect of a server, and the schedules that show whether it does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Behaviour:
    """A row of the table of servers.

    Attributes:
        text: what a correct server does.
        scenario: the scenario whose ``schedules`` show it; if these are empty: all of them.
    """

    text: str
    scenario: str
    schedules: tuple[str, ...] = ()


BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour("one request after the other, streamed or in one piece", "served_alone", ("alone",)),
    Behaviour("top_logprobs, stream_options, logprobs of a text", "served_alone", ("fields",)),
    Behaviour("the server's own model is listed", "served_alone", ("listed",)),
    Behaviour("/v1/messages", "served_endpoints", ("messages",)),
    Behaviour("/v1/responses", "served_endpoints", ("responses",)),
    Behaviour("all endpoints at once", "served_endpoints", ("mixed",)),
    Behaviour("stop sequences of /v1/messages", "served_endpoints", ("stop_sequences",)),
    Behaviour("several at once, of equal length", "served_together", ("equal_length",)),
    Behaviour("several at once, of other lengths", "served_together", ("ragged",)),
    Behaviour("the same request several times at once", "served_together", ("identical",)),
    Behaviour("streams beside answers in one piece", "served_together", ("some_whole",)),
    Behaviour("a client of HTTP/1.1 that reads slowly", "served_together", ("by_raw",)),
    Behaviour("the client of Anthropic", "served_together", ("by_anthropic",)),
    Behaviour("the client of LangChain", "served_together", ("by_langchain*",)),
    Behaviour("a request that joins a long answer", "served_joins"),
    Behaviour("short answers beside long ones, ten at once", "served_ends"),
    Behaviour("more requests than slots", "served_slots"),
    Behaviour("no more rows, prompts and tokens at once than allowed", "served_options", ("rows",)),
    Behaviour("no more prompts kept than allowed", "served_options", ("kept_number",)),
    Behaviour("no more bytes of prompts kept than allowed", "served_options", ("kept_bytes*",)),
    Behaviour("a draft model, several clients", "served_options", ("draft_model",)),
    Behaviour("an adapter from the start, several clients", "served_options", ("adapter_path*",)),
    Behaviour("stop strings", "served_stops"),
    Behaviour("seeds beside plain requests", "served_samplers"),
    Behaviour("each request's own options, without seeds", "served_traffic", ("options",)),
    Behaviour("several stop strings and end tokens", "served_traffic", ("ends",)),
    Behaviour("top_logprobs of streams", "served_traffic", ("logprobs",)),
    Behaviour("64 equal requests draw by their probabilities", "served_draws"),
    Behaviour("characters of several tokens, of bytes", "served_text", ("byte_level",)),
    Behaviour("the same as in SentencePiece", "served_text", ("byte_fallback",)),
    Behaviour("the same by the tokenizer itself", "served_text", ("library",)),
    Behaviour("stop strings within words and characters", "served_text", ("stops",)),
    Behaviour("end tokens in mid-character", "served_text", ("ends",)),
    Behaviour("images beside text", "served_media"),
    Behaviour("quantized keys and values", "served_quantized"),
    Behaviour("prompts that begin alike, with the prefix cache", "served_prefixes"),
    Behaviour("one system message for many", "served_systems", ("for_many",)),
    Behaviour("a changed system message", "served_systems", ("changed",)),
    Behaviour("more system messages than are kept", "served_systems", ("few_kept",)),
    Behaviour("images in the prefix cache", "served_image_prefixes"),
    Behaviour("JSON of a schema, then plain text", "served_schemas", ("in_turn",)),
    Behaviour("JSON of a schema beside plain text", "served_schemas", ("in_one_batch",)),
    Behaviour("another model on request, and back", "served_models", ("in_turn",)),
    Behaviour("another model while one answers", "served_models", ("while_one_answers",)),
    Behaviour("a model of other layers, and back", "served_models", ("other_architecture",)),
    Behaviour("no model kept that another replaced", "served_models", ("weighed",)),
    Behaviour("an adapter on request, and without it again", "served_adapters", ("in_turn",)),
    Behaviour("an adapter while one answers", "served_adapters", ("while_one_answers",)),
    Behaviour("several adapters at once, and none", "served_adapters", ("at_once",)),
    Behaviour("an adapter of the default model", "served_adapters", ("default_model",)),
    Behaviour("reasoning and calls of tools", "served_markers", ("in_turn",)),
    Behaviour("the same in streams alone", "served_markers", ("in_streams",)),
    Behaviour("the same in one batch", "served_markers", ("in_one_batch",)),
    Behaviour("whole calls in each style of markers", "served_tools", ("*_whole",)),
    Behaviour("calls that the limit cuts", "served_tools", ("*_cut",)),
    Behaviour("calls that an end token breaks off", "served_tools", ("*_ended",)),
    Behaviour("stop strings in reasoning and after calls", "served_tools", ("*_stopped",)),
    Behaviour("calls in messages and responses", "served_tools", ("*_messages", "*_responses")),
    Behaviour("a thinking budget", "served_tools", ("budgets_alone",)),
    Behaviour("thinking budgets beside other thinking", "served_tools", ("budgets",)),
    Behaviour("a client leaves the last slot", "served_leaves", ("last_slot",)),
    Behaviour("a client leaves a stream beside others", "served_leaves", ("stream",)),
    Behaviour("a client leaves while it waits", "served_leaves", ("waiting",)),
    Behaviour("a client leaves at its last token", "served_leaves", ("last_token",)),
    Behaviour("a client leaves while its prompt is computed", "served_leaves", ("prefill",)),
    Behaviour("a client leaves an answer that it did not read", "served_leaves", ("unread",)),
    Behaviour("320 at once, of whom a quarter leave", "served_flood"),
    Behaviour("computes no rows, positions and bytes beyond what is asked", "cost_served"),
    Behaviour("bodies that are no JSON object, or huge", "served_malformed", ("bodies",)),
    Behaviour("messages of a wrong type", "served_malformed", ("messages",)),
    Behaviour("numbers of a wrong type or out of range", "served_malformed", ("numbers",)),
    Behaviour("other fields of a wrong type", "served_malformed", ("fields",)),
    Behaviour("images that are none", "served_malformed", ("media",)),
    Behaviour("an unknown model", "served_malformed", ("model",)),
    Behaviour("stop strings that are no text", "served_malformed", ("stop_*",)),
)
"""From the simplest. Malformed requests: refused with a reason, and nobody is harmed."""
