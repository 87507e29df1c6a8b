"""Defects of what comes to the model of a conversation, and in what order its pictures do."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_vlm.server import generation, openai

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server prompts",
    source="issue trackers: conversations of which servers lose a part",
    kills=("served_alone",),
)


@_fault("S125.last-message-alone")
def last_message_alone(hits: Hits) -> Patch:
    """Of a conversation the last message alone comes to the model, and the system message."""

    def normalize(found: Any, messages: list[dict[str, Any]], *_: Any) -> Any:
        first = [m for m in messages[:-1] if m["role"] == "system"]
        hits.hit_if(len(first) + 1 < len(messages))
        messages[:] = [*first, *messages[-1:]]
        return found

    return after(openai, "_normalize_instruction_messages", normalize)


@_fault("S128.pictures-backwards", needs=("modality:image",), kills=("served_media",))
def pictures_backwards(hits: Hits) -> Patch:
    """A message's last picture comes to the model in the place of its first one."""

    def preprocess(
        right: Right, self: Any, prompt: Any, images: Any = None, *rest: Any, **options: Any
    ) -> Any:
        hits.hit_if(images and list(images) != list(images)[::-1])
        return right(self, prompt, images[::-1] if images else images, *rest, **options)

    return wrap(generation.ResponseGenerator, "_cpu_preprocess", preprocess)
