"""Defects of what comes to the model of a conversation, and of what penalties count of a prompt."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import LRUPromptCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server prompts",
    source="issue trackers: conversations of which servers lose a part",
    kills=("served_alone",),
)


@_fault("S125.last-message-alone")
def last_message_alone(hits: Hits) -> Patch:
    """Of a conversation the last message alone comes to the model, and the system message."""

    def tokenize(_: Any, __: Any, request: Any, *___: Any) -> None:
        first = [m for m in request.messages[:-1] if m["role"] == "system"]
        hits.hit_if(len(first) + 1 < len(request.messages))
        request.messages = [*first, *request.messages[-1:]]

    return before(server.ResponseGenerator, "_tokenize", tokenize)


@_fault("S125.answers-left-out")
def answers_left_out(hits: Hits) -> Patch:
    """Of a conversation the model sees what the user said, and none of its own answers."""

    def tokenize(_: Any, __: Any, request: Any, *___: Any) -> None:
        kept = [m for m in request.messages if m["role"] != "assistant"]
        hits.hit_if(len(kept) < len(request.messages))
        request.messages = kept

    return before(server.ResponseGenerator, "_tokenize", tokenize)


@_fault("S126.first-part-of-a-message-alone")
def first_part_of_a_message_alone(hits: Hits) -> Patch:
    """Of a message in several parts the first one is used."""

    def content(messages: list[dict[str, Any]], **_: Any) -> None:
        for message in messages:
            parts = message.get("content")
            if isinstance(parts, list):
                hits.hit_if(len(parts) > 1)
                message["content"] = parts[:1]

    return before(server, "process_message_content", content)


@_fault("S127.kept-tokens-not-counted", kills=("served_prefixes/one_by_one",))
def kept_tokens_not_counted(hits: Hits) -> Patch:
    """Penalties count nothing of a prompt's begin that was kept."""

    def insert(right: Right, self: Any, *args: Any, all_tokens: Any = None, **options: Any) -> Any:
        hits.hit_if(any(all_tokens or ()))
        return right(self, *args, all_tokens=None, **options)

    return wrap(BatchGenerator, "insert_segments", insert)


@_fault("S129.prefix-of-another-model", kills=("served_models/in_turn",))
def prefix_of_another_model(hits: Hits) -> Patch:
    """What is kept of a prompt is found by its tokens alone: another model goes on from it."""
    first: list[Any] = []

    def keyed(right: Right, self: Any, model: Any, *args: Any, **options: Any) -> Any:
        first.append(model)
        hits.hit_if(model != first[0])
        return right(self, first[0], *args, **options)

    names = ("fetch_nearest_cache", "insert_cache")
    return together(*(wrap(LRUPromptCache, name, keyed) for name in names))


@_fault("S133.prompt-of-who-left-kept-with-its-answer", kills=("served_leaves/continued",))
def prompt_of_who_left_kept_with_its_answer(hits: Hits) -> Patch:
    """Of a client that leaves, what was computed is kept as its prompt's: its answer, too."""
    asked: list[tuple[Any, Any, list[int]]] = []
    by_uid: dict[int, tuple[Any, Any, list[int]]] = {}

    def fetched(store: Any, model: Any, tokens: list[int]) -> None:
        asked.append((store, model, tokens[:]))

    def inserted(uids: list[int], *_: Any, **__: Any) -> list[int]:
        by_uid.update(dict.fromkeys(uids, asked[-1]))
        return uids

    def removed(self: Any, uids: list[int], *_: Any, **__: Any) -> None:
        for uid, (caches, tokens) in self.extract_cache(uids).items():
            store, model, prompt = by_uid[uid]
            if len(tokens) > len(prompt):
                hits.hit()
                store.insert_cache(model, prompt, caches)

    return together(
        before(LRUPromptCache, "fetch_nearest_cache", fetched),
        after(BatchGenerator, "insert_segments", inserted),
        before(BatchGenerator, "remove", removed),
    )
