"""Parts that are right for some rows, pieces or options, and wrong for those past a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils
from mlx_lm.models.cache import TokenBuffer

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    generate,
    mlx_lm_fault,
    padding_as,
)
from conformance.power.faults.shared_faults import OUTPUT

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
_many = partial(mlx_lm_fault, source="a review: nothing is many", where=OUTPUT)
_sampler = partial(_many, fault_class="samplers", where="")


@_many(
    "B10.removals-of-the-first-64", fault_class="cancellation", where="", kills=("marathon/crowd",)
)
def removals_of_the_first_64(hits: Hits) -> Patch:
    """Of the requests that one call removes, those after the first 64 go on."""

    def remove(right: Right, self: Any, uids: Sequence[int], **options: Any) -> Any:
        hits.hit_if(len(uids) > 64)
        return right(self, list(uids)[:64], **options)

    return wrap(_GENERATOR, "remove", remove)


@_many(
    "B14.padding-of-the-first-256",
    fault_class="scalar/array dispatch",
    needs=(ATTENTION,),
    kills=("marathon/crowd",),
    where="module:*",
)
def padding_of_the_first_256(hits: Hits) -> Patch:
    """Rows past the 256th are masked by the padding of the first rows."""
    return padding_as(lambda padding: padding[mx.arange(padding.size) % 256], hits)


@_many("F13.piece-33-turned-round", fault_class="chunk", kills=("marathon/long",))
def piece_33_turned_round(hits: Hits) -> Patch:
    """The 33rd piece of a prompt has its tokens in the other order."""
    pieces = Counter[int]()

    def prompt(right: Right, self: Any, tokens: list[list[int]]) -> None:
        pieces.update(self.uids)
        turned = {at for at, uid in enumerate(self.uids) if pieces[uid] == 33}
        hits.hit_if(any(len(tokens[at]) > 1 for at in turned))
        right(self, [own[::-1] if at in turned else own for at, own in enumerate(tokens)])

    return wrap(generate.PromptProcessingBatch, "prompt", prompt)


@_many(
    "F13.segments-past-the-32nd-swapped",
    fault_class="chunk",
    kills=("prompt_cache/segments_with_options",),
)
def segments_past_the_32nd_swapped(hits: Hits) -> Patch:
    """Of a prompt in more than 32 segments, the others come in the wrong order."""

    def insert(right: Right, self: Any, segments: Any, *args: Any, **options: Any) -> Any:
        hits.hit_if(any(len(own) > 33 for own in segments))
        swapped = [[*own[:32], *list(own[32:])[::-1]] for own in segments]
        return right(self, swapped, *args, **options)

    return wrap(_GENERATOR, "insert_segments", insert)


_past_the_eighth = partial(_many, fault_class="samplers", kills=("traffic_options/crowd",))


def _of_the_row_before(name: str, hits: Hits) -> Patch:
    """In a step, rows past the eighth have what is of the row before in this list of rows."""

    def step(right: Right, self: Any) -> Any:
        own = getattr(self, name)
        moved = [*own[:8], *own[7:-1]][: len(own)]
        hits.hit_if(any(one is not other for one, other in zip(own, moved, strict=True)))
        with replace(self, name, moved):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_past_the_eighth("D8.processors-past-the-eighth-row")
def processors_past_the_eighth_row(hits: Hits) -> Patch:
    """Rows past the eighth have the processors of the row before."""
    return _of_the_row_before("logits_processors", hits)


@_past_the_eighth("D8.samplers-past-the-eighth-row")
def samplers_past_the_eighth_row(hits: Hits) -> Patch:
    """Rows past the eighth have the sampler of the row before."""
    return _of_the_row_before("samplers", hits)


@_past_the_eighth("D8.samplers-of-64-requests")
def samplers_of_64_requests(hits: Hits) -> Patch:
    """Samplers are kept by the last six bits of a request's number, for good."""
    kept: dict[int, Any] = {}

    def step(right: Right, self: Any) -> Any:
        own = [kept.setdefault(u % 64, s) for u, s in zip(self.uids, self.samplers, strict=True)]
        hits.hit_if(any(one is not s for one, s in zip(own, self.samplers, strict=True)))
        with replace(self, "samplers", own):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_many("D8.sixteen-processors-at-most", fault_class="samplers", kills=("traffic_options",))
def sixteen_processors_at_most(hits: Hits) -> Patch:
    """Of a row's processors the first sixteen change its logits."""

    def step(right: Right, self: Any) -> Any:
        given = self.logits_processors
        hits.hit_if(any(len(own or ()) > 16 for own in given))
        with replace(self, "logits_processors", [own and own[:16] for own in given]):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_sampler("F2.forty-likeliest-at-most", kills=("samplers/drawn_likely",))
def forty_likeliest_at_most(hits: Hits) -> Patch:
    """Where rows share a sampler, top-k leaves no more than 40 tokens."""

    def apply(right: Right, logprobs: mx.array, top_k: int) -> Any:
        several = logprobs.shape[0] > 1
        hits.hit_if(several and top_k > 40)
        return right(logprobs, min(top_k, 40) if several else top_k)

    return wrap(sample_utils, "apply_top_k", apply)


@_sampler("F2.eight-tokens-kept-at-most", kills=("samplers/drawn_share",))
def eight_tokens_kept_at_most(hits: Hits) -> Patch:
    """Where rows share a sampler, min-p spares no more than eight tokens for their number."""

    def apply(right: Right, logprobs: mx.array, share: float, least: int = 1) -> Any:
        several = logprobs.shape[0] > 1
        hits.hit_if(several and least > 8)
        return right(logprobs, share, min(least, 8) if several else least)

    return wrap(sample_utils, "apply_min_p", apply)


@_many("G11.histories-of-1024", fault_class="samplers", kills=("traffic_options/history",))
def histories_of_1024(hits: Hits) -> Patch:
    """Processors get the last 1,024 tokens of a row."""

    def update(right: Right, self: Any, tokens: mx.array) -> mx.array:
        history: mx.array = right(self, tokens)
        hits.hit_if(history.size > 1024)
        return history[-1024:]

    return wrap(TokenBuffer, "update_and_fetch", update)
