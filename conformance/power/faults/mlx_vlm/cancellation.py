"""Faults of removal: in prefill, at decode, and what is left of the removed."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.backend.shared_faults import OUTPUT, length_as_stop
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.mlx_vlm.library_parts import generator_class, prompt_class
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="cancellation",
    source="mlx-vlm #1030",
    kills=("cancelled",),
    where=OUTPUT,
)


@_fault("B10.removal-in-prefill-ignored")
def removal_in_prefill_ignored(hits: Hits) -> Patch:
    """One of several prompts in prefill cannot be removed."""

    def remove(right: Right, self: Any, uid: int) -> None:
        if len(self.uids) > 1:
            hits.hit()
        else:
            right(self, uid)

    return wrap(prompt_class(), "remove", remove)


@_fault("B10.another-row-removed-in-prefill")
def another_row_removed_in_prefill(hits: Hits) -> Patch:
    """Of several prompts in prefill the tokens and caches of another one are removed.

    The uid goes, and the arrays of the row that stands where it would from the other end. It takes
    effect once the prompts that are left go on; where all are removed none does.
    """
    spoilt: set[int] = set()

    def remove(right: Right, self: Any, uid: int) -> None:
        at = self.uids.index(uid)
        if at != len(self.uids) - 1 - at:
            spoilt.add(id(self))
        self.uids.reverse()
        right(self, uid)
        self.uids.reverse()

    def step(batch: Any) -> None:
        hits.hit_if(id(batch) in spoilt and batch.uids)

    return together(
        wrap(prompt_class(), "remove", remove), before(prompt_class(), "prompt_step", step)
    )


@_fault("B7.removed-row-goes-on")
def removed_row_goes_on(hits: Hits) -> Patch:
    """A removed request goes on until its natural end."""

    def remove(right: Right, self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            return True
        return right(self, uid)

    return wrap(generator_class(), "remove", remove)


# How joins of rows crash is known from `staggered` and `quantized`.
@_fault("B7.removed-row-computes-on", kills=("cancelled", "staggered", "quantized"))
def removed_row_computes_on(hits: Hits) -> Patch:
    """A removed request produces no more tokens, but its row is decoded until its natural end."""
    gone: set[tuple[int, int]] = set()

    def remove(right: Right, self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            gone.add((id(self), uid))
            return True
        return right(self, uid)

    def hide(result: Any, self: Any, **_: Any) -> Any:
        progress, responses = result
        return progress, [r for r in responses if (id(self), r.uid) not in gone]

    return together(
        wrap(generator_class(), "remove", remove), after(generator_class(), "_next", hide)
    )


@_fault("B10.another-row-removed-at-decode")
def another_row_removed_at_decode(hits: Hits) -> Patch:
    """Of several rows that decode the first is removed, whichever is meant."""

    def remove(right: Right, self: Any, uid: int) -> Any:
        uids = self._generation_batch.uids
        first = uids[0] if uid in uids else uid
        hits.hit_if(first != uid)
        return right(self, first)

    return wrap(generator_class(), "remove", remove)


@_fault("B8.end-taken-for-removal", kills=("batch_of_one",))
def end_taken_for_removal(hits: Hits) -> Patch:
    """A request that reaches its limit is reported as one that was stopped."""

    def stopped(result: Any, *_: Any, **__: Any) -> Any:
        length_as_stop(result[1], hits)
        return result

    return after(generator_class(), "_next", stopped)


# In other schedules of `cancelled` the others that decode go with it.
@_fault("F11.token-decoded-twice", source="issue trackers", kills=("cancelled/decode",))
def token_decoded_twice(hits: Hits) -> Patch:
    """A removal between two steps makes the others decode their last token again.

    Their step is done again, on caches that hold its tokens.
    """

    def remove(right: Right, self: Any, uid: int) -> Any:
        batch = self._generation_batch
        uids = list(batch.uids)
        current = getattr(batch, "_current_tokens", None)
        done = right(self, uid)
        if uid in uids and batch.uids and current is not None and len(current) == len(uids):
            hits.hit()
            batch._next_tokens = current[[i for i, one in enumerate(uids) if one != uid]]
        return done

    return wrap(generator_class(), "remove", remove)
