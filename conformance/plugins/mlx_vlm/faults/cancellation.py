"""Faults of removal: in prefill, at decode, and what is left of the removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import (
    after,
    fault,
    generator_class,
    prompt_class,
)

_CLASS = "cancellation"


def _ignored_in_prefill(hits: Hits) -> AbstractContextManager[None]:
    real = prompt_class().remove

    def remove(self: Any, uid: int) -> None:
        if len(self.uids) > 1:
            hits.hit()
            return
        real(self, uid)

    return replaced(prompt_class(), "remove", remove)


@contextlib.contextmanager
def _another_in_prefill(hits: Hits) -> Iterator[None]:
    """The uid goes, and the arrays of the row that stands where it would from the other end.

    It takes effect once the prompts that are left go on; where all are removed none does.
    """
    real, real_step = prompt_class().remove, prompt_class().prompt_step
    spoilt: set[int] = set()

    def remove(self: Any, uid: int) -> None:
        at = self.uids.index(uid)
        if at != len(self.uids) - 1 - at:
            spoilt.add(id(self))
        self.uids.reverse()
        real(self, uid)
        self.uids.reverse()

    def step(self: Any) -> Any:
        if id(self) in spoilt and self.uids:
            hits.hit()
        return real_step(self)

    with replaced(prompt_class(), "remove", remove), replaced(prompt_class(), "prompt_step", step):
        yield


def _speaks_on(hits: Hits) -> AbstractContextManager[None]:
    real = generator_class().remove

    def remove(self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            return True
        return real(self, uid)

    return replaced(generator_class(), "remove", remove)


@contextlib.contextmanager
def _computes_on(hits: Hits) -> Iterator[None]:
    """A removed row is silent and stays in the batch until its natural end."""
    real_remove, real_next = generator_class().remove, generator_class()._next
    gone: set[tuple[int, int]] = set()

    def remove(self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            gone.add((id(self), uid))
            return True
        return real_remove(self, uid)

    def step(self: Any, **options: Any) -> Any:
        progress, responses = real_next(self, **options)
        return progress, [r for r in responses if (id(self), r.uid) not in gone]

    with (
        replaced(generator_class(), "remove", remove),
        replaced(generator_class(), "_next", step),
    ):
        yield


def _another_at_decode(hits: Hits) -> AbstractContextManager[None]:
    real = generator_class().remove

    def remove(self: Any, uid: int) -> Any:
        uids = self._generation_batch.uids
        if uid in uids and uids[0] != uid:
            hits.hit()
            return real(self, uids[0])
        return real(self, uid)

    return replaced(generator_class(), "remove", remove)


def _end_taken_for_removal(hits: Hits) -> AbstractContextManager[None]:
    def stop(_: Any, result: Any, __: Any) -> Any:
        for response in result[1]:
            if response.finish_reason == "length":
                hits.hit()
                response.finish_reason = "stop"
        return result

    return after(generator_class(), "_next", stop)


def _decoded_twice(hits: Hits) -> AbstractContextManager[None]:
    """After a removal the step of the others is done again, on caches that hold its tokens."""
    real = generator_class().remove

    def remove(self: Any, uid: int) -> Any:
        batch = self._generation_batch
        uids = list(batch.uids)
        spoken = getattr(batch, "_current_tokens", None)
        done = real(self, uid)
        if uid in uids and batch.uids and spoken is not None and len(spoken) == len(uids):
            hits.hit()
            batch._next_tokens = spoken[[i for i, one in enumerate(uids) if one != uid]]
        return done

    return replaced(generator_class(), "remove", remove)


FAULTS = (
    fault(
        "B10.removal-in-prefill-ignored",
        _CLASS,
        "mlx-vlm #1030",
        "one of several prompts in prefill cannot be removed",
        _ignored_in_prefill,
        kills="cancelled",
        where="input:tokens|output:*",
    ),
    fault(
        "B10.another-row-removed-in-prefill",
        _CLASS,
        "mlx-vlm #1030",
        "of several prompts in prefill the tokens and caches of another one are removed",
        _another_in_prefill,
        kills="cancelled",
        where="input:tokens|output:*",
    ),
    fault(
        "B7.removed-row-speaks",
        _CLASS,
        "mlx-vlm #1030",
        "a removed request goes on until its natural end",
        _speaks_on,
        kills="cancelled",
        where="input:tokens|output:*",
    ),
    fault(
        "B7.removed-row-computes-on",
        _CLASS,
        "mlx-vlm #1030",
        "a removed request is silenced, and its row decoded until its natural end",
        _computes_on,
        kills="cancelled staggered quantized",  # how joins of rows crash is known from there
        where="input:tokens|output:*",
    ),
    fault(
        "B10.another-row-removed-at-decode",
        _CLASS,
        "mlx-vlm #1030",
        "of several rows that decode the first is removed, whichever is meant",
        _another_at_decode,
        kills="cancelled",
        where="input:tokens|output:*",
    ),
    fault(
        "B8.end-taken-for-removal",
        _CLASS,
        "mlx-vlm #1030",
        "a request that reaches its limit is reported as one that was stopped",
        _end_taken_for_removal,
        kills="batch_of_one",
        where="input:tokens|output:*",
    ),
    fault(
        "F11.token-decoded-twice",
        _CLASS,
        "issue trackers",
        "a removal between two steps makes the others decode their last token again",
        _decoded_twice,
        # In other schedules of it the others that decode go with it.
        kills="cancelled/decode",
        where="input:tokens|output:*",
    ),
)
