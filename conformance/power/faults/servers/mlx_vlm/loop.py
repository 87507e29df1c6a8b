"""Defects of the generation loop: who is taken up, who is left behind, whose image is seen."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_vlm import apc
from mlx_vlm.generate import ar
from mlx_vlm.server import generation

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.servers.planting import served_fault
from conformance.power.faults.shared_faults import differs

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server loop",
    source="issue trackers: loops of several servers",
)


@_fault("S13.disconnect-not-noticed", kills=("served_leaves/last_slot",))
def disconnect_not_noticed(hits: Hits) -> Patch:
    """A client that leaves is answered to the end: nobody cancels its request."""

    def cancel(_: Right, __: Any, ___: int) -> None:
        hits.hit()

    return wrap(generation.ResponseGenerator, "_cancel", cancel)


@_fault("S14.slot-not-freed", kills=("served_leaves/last_slot",))
def slot_not_freed(hits: Hits) -> Patch:
    """A cancelled row goes on in the batch, and its slot is free only at its own end."""

    def remove(_: Right, __: Any, ___: Any) -> bool:
        hits.hit()
        return False

    return wrap(ar.BatchGenerator, "remove", remove)


@_fault("S28.caches-of-ended-rows-kept", fault_class="leak", kills=("cost_served/end",))
def caches_of_ended_rows_kept(hits: Hits) -> Patch:
    """A list holds what the batch's caches were whenever a row left it, and nobody empties it."""
    kept: list[Any] = []

    def keep(batch: Any, *_: Any, **__: Any) -> None:
        hits.hit()
        kept.append([cache.state for cache in batch.prompt_cache])

    return before(ar.GenerationBatch, "filter", keep)


@_fault("S15.joined-row-starved", kills=("served_joins",))
def joined_row_starved(hits: Hits) -> Patch:
    """Who comes while others are answered waits until all of them have ended."""

    def collect(right: Right, self: Any, *, active: bool, **options: Any) -> Any:
        if active:
            hits.hit_if(not self.requests.empty())
            return [], False
        return right(self, active=active, **options)

    return wrap(generation.ResponseGenerator, "_collect_pending_requests", collect)


@_fault("S21.image-breaks-off-the-others", kills=("served_media/one_picture_twice",))
def image_breaks_off_the_others(hits: Hits) -> Patch:
    """An exception while an image is looked at ends the answers of all others."""

    def embed(right: Right, self: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        if inputs.get("pixel_values") is not None:
            hits.hit()
            raise ValueError("no such image")
        return right(self, inputs, *args, **options)

    return wrap(generation.ResponseGenerator, "_gpu_embed", embed)


@_fault("F8.prefix-kept-without-the-image", kills=("served_image_prefixes",))
def prefix_kept_without_the_image(hits: Hits) -> Patch:
    """What is kept of a prompt is found by its tokens alone: a new image gets an old one's."""

    def semantic(right: Right, **options: Any) -> int:
        return int(right(**{**options, "image_hash": 0, "media": None}))

    def media(right: Right, *args: Any) -> bool:
        hits.hit_if(right(*args))
        return False

    return together(
        wrap(apc, "semantic_extra_hash", semantic),
        wrap(apc, "prefix_contains_media_tokens", media),
    )


@_fault("S22.image-of-the-request-before", kills=("served_media",))
def image_of_the_request_before(hits: Hits) -> Patch:
    """A request with an image gets the image of the one before, where its layout is the same."""
    last: dict[Any, Any] = {}

    def embed(right: Right, self: Any, inputs: Any, images: Any = None, **options: Any) -> Any:
        pixels = inputs.get("pixel_values")
        if pixels is not None:
            before = last.get(pixels.shape, pixels)
            hits.hit_if(differs(before, pixels))
            inputs = {**inputs, "pixel_values": before}
            last[pixels.shape] = pixels
        return right(self, inputs, images, **options)

    return wrap(generation.ResponseGenerator, "_gpu_embed", embed)


@_fault("S23.row-ends-with-its-neighbour", kills=("served_ends",))
def row_ends_with_its_neighbour(hits: Hits) -> Patch:
    """An answer that ends takes the next row of the batch with it."""

    def step(responses: Any, batch: Any) -> Any:
        ended = [r for r in responses if r.finish_reason is not None]
        others = [r for r in responses if r.finish_reason is None]
        if ended and others:
            hits.hit()
            others[0].finish_reason = "length"
            batch.filter([i for i, uid in enumerate(batch.uids) if uid != others[0].uid])
        return responses

    return after(ar.GenerationBatch, "next", step)


@_fault("S39.leaving-in-prefill-ends-the-loop", kills=("served_leaves/prefill",))
def leaving_in_prefill_ends_the_loop(hits: Hits) -> Patch:
    """A row that is taken out while its prompt is computed is looked up among those that decode."""

    def remove(_: Right, __: Any, uid: int) -> None:
        hits.hit()
        raise KeyError(uid)

    return wrap(ar.PromptProcessingBatch, "remove", remove)


@_fault("S41.leaving-in-prefill-takes-a-neighbour", kills=("served_leaves/prefill",))
def leaving_in_prefill_takes_a_neighbour(hits: Hits) -> Patch:
    """Of a prompt batch that a row leaves, the next row is left out, and its place is kept."""

    def remove(right: Right, batch: Any, uid: int) -> None:
        at = batch.uids.index(uid)
        right(batch, batch.uids[(at + 1) % len(batch.uids)])
        hits.hit()
        batch.uids[batch.uids.index(uid)] = -1

    return wrap(ar.PromptProcessingBatch, "remove", remove)


@_fault("S115.one-leaver-at-a-time", kills=("served_leaves/several",))
def one_leaver_at_a_time(hits: Hits) -> Patch:
    """Of several clients that leave within a step one is noticed; the others are answered on."""

    def noticed(found: Any, *_: Any) -> Any:
        hits.hit_if(len(found) > 1)
        return list(found)[:1]

    return after(generation.ResponseGenerator, "_drain_cancellations", noticed)


@_fault("S116.picture-that-comes-twice-once", needs=("modality:image",), kills=("served_media",))
def picture_that_comes_twice_once(hits: Hits) -> Patch:
    """A picture that is in two places of a message is taken once."""

    def preprocess(
        right: Right, self: Any, prompt: Any, images: Any = None, *rest: Any, **options: Any
    ) -> Any:
        once = list(dict.fromkeys(images)) if images else images
        hits.hit_if(images and len(once) < len(images))
        return right(self, prompt, once, *rest, **options)

    return wrap(generation.ResponseGenerator, "_cpu_preprocess", preprocess)
