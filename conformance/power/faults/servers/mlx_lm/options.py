"""Defects of a request's own options: which row gets them, and which are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.generate import BatchGenerator

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server options",
    source="issue trackers: options that servers take and do not use",
    kills=("served_traffic/options",),
)


def _sampling(hits: Hits, change: Callable[[Any], None]) -> Patch:
    """The sampler of a request is made of its changed arguments."""

    def make(right: Right, args: Any, tokenizer: Any) -> Any:
        before = dict(vars(args.sampling))
        change(args.sampling)
        hits.hit_if(vars(args.sampling) != before)
        return right(args, tokenizer)

    return wrap(server, "_make_sampler", make)


@_fault("S29.sampler-of-the-first-row")
def sampler_of_the_first_row(hits: Hits) -> Patch:
    """All rows of a generator are sampled as the first sampled request asked."""
    first: list[Any] = []

    def make(right: Right, args: Any, tokenizer: Any) -> Any:
        own = right(args, tokenizer)
        if args.sampling.temperature and not first:
            first.append(own)
        hits.hit_if(first and own is not first[0])
        return first[0] if first and args.sampling.temperature else own

    return wrap(server, "_make_sampler", make)


@_fault("S30.top-k-and-min-p-ignored")
def top_k_and_min_p_ignored(hits: Hits) -> Patch:
    """No sampler gets the top_k and the min_p of its request."""

    def change(sampling: Any) -> None:
        sampling.top_k, sampling.min_p = 0, 0.0

    return _sampling(hits, change)


@_fault("S31.temperature-ignored")
def temperature_ignored(hits: Hits) -> Patch:
    """All sampled requests are sampled at the temperature of 1."""

    def change(sampling: Any) -> None:
        sampling.temperature = 1.0 if sampling.temperature else 0.0

    return _sampling(hits, change)


@_fault("S32.biases-of-all")
def biases_of_all(hits: Hits) -> Patch:
    """The biases of requests are kept in one table, which is used for all."""
    table: dict[int, float] = {}

    def make(right: Right, args: Any) -> Any:
        table.update(args.logits.logit_bias or {})
        hits.hit_if(table != (args.logits.logit_bias or {}))
        args.logits.logit_bias = dict(table)
        return right(args)

    return wrap(server, "_make_logits_processors", make)


@_fault("S33.penalty-lost-beside-another")
def penalty_lost_beside_another(hits: Hits) -> Patch:
    """Of several logits processors of a request the last is left out."""

    def make(right: Right, args: Any) -> Any:
        found = right(args)
        hits.hit_if(len(found) > 1)
        return found[:-1] if len(found) > 1 else found

    return wrap(server, "_make_logits_processors", make)


@_fault("S37.logprobs-of-the-first-request", kills=("served_traffic/some_logprobs",))
def logprobs_of_the_first_request(hits: Hits) -> Patch:
    """All answers of a batch have logprobs if the request that came first asks for them."""
    first: list[tuple[bool, int]] = []
    at_work: list[Any] = []

    def generate(
        right: Right, self: Any, request: Any, args: Any, *more: Any, **options: Any
    ) -> Any:
        own = (args.logprobs, args.top_logprobs)
        if not at_work:
            first[:] = [own]
        hits.hit_if(own != first[0])
        args.logprobs, args.top_logprobs = first[0]
        context, tokens = right(self, request, args, *more, **options)
        at_work.append(args)
        return context, until_its_end(tokens)

    def until_its_end(tokens: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from tokens
        finally:
            at_work.pop()

    return wrap(server.ResponseGenerator, "generate", generate)


@_fault("S34.first-stop-string-alone", kills=("served_traffic/ends",))
def first_stop_string_alone(hits: Hits) -> Patch:
    """Of several stop strings the first alone ends an answer."""

    def make(right: Right, self: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        hits.hit_if(len(words) > 1)
        return right(self, key, tokenizer, list(words[:1]))

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


@_fault("S35.first-end-token-alone", kills=("served_traffic/ends",))
def first_end_token_alone(hits: Hits) -> Patch:
    """Of several tokens that end an answer, the tokenizer's own alone does."""

    def make(right: Right, tokenizer: Any, words: Any) -> Any:
        own = {tokenizer.eos_token_id}
        hits.hit_if(tokenizer.eos_token_ids != own)
        tokenizer.eos_token_ids = own
        return right(tokenizer, words)

    return wrap(server, "make_stop_sequences", make)


@_fault("S36.limit-of-one-taken-for-none", kills=("served_traffic/ends",))
def limit_of_one_taken_for_none(hits: Hits) -> Patch:
    """An answer of one token gets a second one."""

    def insert(right: Right, self: Any, segments: Any, *args: Any, **options: Any) -> Any:
        hits.hit_if(options["max_tokens"] == [1])
        options["max_tokens"] = [max(2, most) for most in options["max_tokens"]]
        return right(self, segments, *args, **options)

    return wrap(BatchGenerator, "insert_segments", insert)
