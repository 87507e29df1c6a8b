"""Samplers and processors: those of other rows, the generator's own, what they draw and count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils
from mlx_lm.models.cache import (
    TokenBuffer,
)

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import (
    SURVIVORS,
    generate,
    mlx_lm_fault,
)
from conformance.power.faults.shared_faults import (
    OUTPUT,
    differs,
    kept_by_place,
    no_processors_after,
    nucleus_of_all_rows,
)

_BATCH = generate.GenerationBatch
Processor = Callable[[mx.array, mx.array], mx.array]
_sampler = partial(
    mlx_lm_fault,
    fault_class="samplers",
    source="a Swift engine's fork",
    kills=("samplers",),
    where=OUTPUT,
)


@_sampler("D7.penalties-in-shared-logits")
def penalties_in_shared_logits(hits: Hits) -> Patch:
    """What a row's processors change stays changed for the rows after it."""

    def step(right: Right, self: Any) -> Any:
        own = self.logits_processors
        if not any(own):
            return right(self)
        moved: list[mx.array] = []

        def in_place(processors: Sequence[Processor]) -> Processor:
            def process(tokens: mx.array, logits: mx.array) -> mx.array:
                logits = sum(moved, logits)
                out = mx.array(logits)
                for processor in processors:
                    out = processor(tokens, out)
                hits.hit_if(moved)
                moved.append(out - logits)
                return out

            return process

        shared = [(in_place(processors),) for processors in own]
        with replace(self, "logits_processors", shared):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_sampler("D8.history-of-another-row")
def history_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one's penalties count that row's tokens."""
    return kept_by_place(_BATCH, "_token_context", hits)


@_sampler(
    "D8.prompt-from-its-second-token",
    source="a review: what processors are given",
    kills=("traffic_options/own",),
)
def prompt_from_its_second_token(hits: Hits) -> Patch:
    """After their first token, rows that are prefilled together lose the first of their prompts."""

    def made(_: Any, self: Any, *__: Any, **___: Any) -> None:
        several = len(self.tokens) > 1
        hits.hit_if(several and any(self.logits_processors))
        if several:
            self._token_context = [TokenBuffer(own[1:]) for own in self.tokens]

    return after(_BATCH, "__init__", made)


@_sampler("F2.xtc-threshold-over-rows", source="issue trackers: XTC in a batch")
def xtc_threshold_over_rows(hits: Hits) -> Patch:
    """The least likely of the likely tokens is looked for in all rows, not in each."""

    def apply_xtc(
        right: Right, logits: mx.array, probability: float, threshold: float, special: list[int]
    ) -> mx.array:
        probs = mx.softmax(logits, -1)
        least = mx.where(probs > threshold, probs, mx.inf).min()
        wrong = mx.where(probs > least, -mx.inf, logits)
        apart = mx.concatenate([right(r[None], probability, threshold, special) for r in logits])
        hits.hit_if(differs(wrong, apart))
        return wrong

    return wrap(sample_utils, "apply_xtc", apply_xtc)


@_sampler(
    "F2.nucleus-summed-in-bfloat16",
    source="a review: half precision",
    kills=("samplers/drawn_nucleus",),
)
def nucleus_summed_in_bfloat16(hits: Hits) -> Patch:
    """For several rows the nucleus is summed in bfloat16, in which small shares are lost."""

    def apply_top_p(right: Right, logprobs: mx.array, top_p: float) -> mx.array:
        true: mx.array = right(logprobs, top_p)
        if logprobs.shape[0] == 1:
            return true
        falling = mx.sort(logprobs, axis=-1)[:, ::-1]
        shares = mx.exp(falling).astype(mx.bfloat16)
        sums = mx.cumsum(shares, axis=-1)
        kept = (sums - shares < top_p * sums[:, -1:]).sum(axis=-1, keepdims=True)
        edge = mx.take_along_axis(falling, kept - 1, axis=-1)
        wrong = mx.where(logprobs < edge, -mx.inf, logprobs)
        hits.hit_if(differs(wrong, true))
        return wrong

    return wrap(sample_utils, "apply_top_p", apply_top_p)


@_sampler("F2.top-p-threshold-over-rows", source="issue trackers: top-p in a batch")
def top_p_threshold_over_rows(hits: Hits) -> Patch:
    """The narrowest nucleus of all rows bounds the tokens of each."""
    return nucleus_of_all_rows(sample_utils, hits)


_drawn = partial(mlx_lm_fault, fault_class="samplers", source=SURVIVORS)


@_drawn("F2.temperature-upside-down", kills=("samplers/drawn_warm",))
def temperature_upside_down(hits: Hits) -> Patch:
    """Logits are multiplied by the temperature."""

    def draw(_: Right, logits: mx.array, temp: float) -> mx.array:
        hits.hit_if(temp != 1)
        return mx.random.categorical(logits * temp)

    return wrap(sample_utils, "categorical_sampling", draw)


@_drawn("F2.least-share-of-all-rows", kills=("samplers/drawn_least", "samplers/drawn_share"))
def least_share_of_all_rows(hits: Hits) -> Patch:
    """Min-p measures the tokens of a row by the likeliest token of all rows."""

    def apply(right: Right, logprobs: mx.array, *args: Any) -> mx.array:
        hits.hit_if(logprobs.shape[0] > 1)
        more = logprobs.max() - logprobs.max(axis=-1, keepdims=True)
        best = mx.argmax(logprobs, axis=-1, keepdims=True)
        raised = mx.take_along_axis(logprobs, best, axis=-1) + more
        kept = right(mx.put_along_axis(logprobs, best, raised, axis=-1), *args)
        return mx.where(mx.isinf(kept), kept, logprobs)

    return wrap(sample_utils, "apply_min_p", apply)


@_drawn(
    "F2.least-share-of-many-rows",
    source="a review: rows that share a sampler",
    kills=("distributions/filtered", "marathon/many"),
)
def least_share_of_many_rows(hits: Hits) -> Patch:
    """With more than eight rows, min-p measures each token by the first row's likeliest one."""

    def apply(right: Right, logprobs: mx.array, share: float, *args: Any) -> Any:
        if logprobs.shape[0] <= 8:
            return right(logprobs, share, *args)
        hits.hit()
        least = logprobs[:1].max() + math.log(share)
        return mx.where(logprobs < least, -mx.inf, logprobs)

    return wrap(sample_utils, "apply_min_p", apply)


def _processor(change: Callable[..., Any], name: str) -> Patch:
    """``change(right, tokens, logits)`` is the processor in place of what ``name`` makes."""

    def make(right: Right, *args: Any) -> Any:
        return partial(change, right(*args))

    return wrap(sample_utils, name, make)


@_drawn("D8.first-token-is-no-history", kills=("samplers/of_one_token",))
def first_token_is_no_history(hits: Hits) -> Patch:
    """A history of a single token is not penalised."""

    def penalise(right: Right, tokens: mx.array, logits: mx.array) -> Any:
        hits.hit_if(len(tokens) == 1)
        return right(tokens, logits) if len(tokens) > 1 else logits

    return _processor(penalise, "make_repetition_penalty")


@_drawn("D8.one-token-too-many-counted", kills=("samplers/of_twenty",))
def one_token_too_many_counted(hits: Hits) -> Patch:
    """Frequency penalties count one token more than they are made for."""

    def make(right: Right, penalty: float, context_size: int) -> Any:
        def process(tokens: mx.array, logits: mx.array) -> Any:
            hits.hit_if(len(tokens) > context_size)
            return right(penalty, context_size + 1)(tokens, logits)

        return process

    return wrap(sample_utils, "make_frequency_penalty", make)


_default = partial(
    mlx_lm_fault,
    fault_class="samplers",
    source="no report: GenerationBatch keeps a sampler for each row and a fallback",
    where=OUTPUT,
)


def _greedy(batch: Any, start: int, stop: int, hits: Hits) -> None:
    """Rows in that range that have the generator's sampler become greedy."""
    for row in range(start, stop):
        if batch.samplers[row] is batch.fallback_sampler is not generate.greedy_sampler:
            hits.hit()
            batch.samplers[row] = generate.greedy_sampler


def _has_own(batch: Any) -> bool:
    return any(sampler is not batch.fallback_sampler for sampler in batch.samplers)


@_default("G1.sampler-lost-to-one-that-joins", kills=("samplers/own_joins_defaults",))
def sampler_lost_to_one_that_joins(hits: Hits) -> Patch:
    """When a row with a sampler of its own joins, rows with the generator's become greedy."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows, own = len(self.uids), _has_own(batch)
        right(self, batch)
        if own:
            _greedy(self, 0, rows, hits)

    return wrap(_BATCH, "extend", extend)


@_default("G1.options-lost-in-segments", kills=("prompt_cache/segments_with_options",))
def options_lost_in_segments(hits: Hits) -> Patch:
    """A prompt in several segments is decoded with the sampler and processors of the generator."""

    def insert(right: Right, self: Any, segments: Any, *args: Any, **options: Any) -> Any:
        whole = [len(pieces) == 1 for pieces in segments]
        for name in ("samplers", "logits_processors"):
            given = options.get(name)
            if given:
                hits.hit_if(any(v for v, one in zip(given, whole, strict=True) if not one))
                options[name] = [v if one else None for v, one in zip(given, whole, strict=True)]
        return right(self, segments, *args, **options)

    return wrap(generate.BatchGenerator, "insert_segments", insert)


@_default("G1.sampler-lost-beside-others", kills=("samplers/defaults_join_own",))
def sampler_lost_beside_others(hits: Hits) -> Patch:
    """A row with the generator's sampler that joins rows with their own becomes greedy."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows, own = len(self.uids), _has_own(self)
        right(self, batch)
        if own:
            _greedy(self, rows, len(self.uids), hits)

    return wrap(_BATCH, "extend", extend)


@_default(
    "G2.no-processors-once-all-have-left",
    source="no report: GenerationBatch asks whether any row has processors",
    kills=("samplers/processors_leave",),
)
def no_processors_once_all_have_left(hits: Hits) -> Patch:
    """After the last row with processors has left, those that join get none."""
    return no_processors_after(_BATCH, (), hits)


@_default(
    "G2.history-without-the-prefix",
    source="no report of mlx-lm: mlx-vlm has it (docs/defects/mlx_vlm)",
    kills=("prefix_caching/penalised",),
)
def history_without_the_prefix(hits: Hits) -> Patch:
    """Processors are not shown the tokens of the cache that a request goes on from."""
    # A list of tokens goes from the call to the batch as the same object, which grows.
    cached: dict[int, tuple[list[int], int]] = {}

    def insert(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        given = options.get("all_tokens") or ()
        cached.update({id(tokens): (tokens, len(tokens)) for tokens in given})
        return right(self, *args, **options)

    def buffer(tokens: list[int]) -> Any:
        _, known = cached.get(id(tokens), ([], 0))
        hits.hit_if(known)
        return TokenBuffer(tokens[known:])

    found = wrap(generate.BatchGenerator, "insert_segments", insert)
    return together(found, replace(generate, "TokenBuffer", buffer))


@_default(
    "G2.processors-kept-of-plain-rows-that-left",
    source="mlx-lm #1772: the list was cut only where some row had processors",
    kills=("samplers/plain_leaves",),
)
def processors_kept_of_plain_rows_that_left(hits: Hits) -> Patch:
    """While no row has processors, the list of them stays as long as the batch was."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        rows = len(self.uids)
        right(self, keep)
        if keep and len(keep) < rows and not any(self.logits_processors):
            hits.hit()
            self.logits_processors += [()] * (rows - len(keep))

    return wrap(_BATCH, "filter", filter_rows)


_draw = partial(
    mlx_lm_fault,
    fault_class="samplers",
    source="a review of what no check sees: how rows draw",
    kills=("distributions", "traffic_options"),
)
Sampler = Callable[[mx.array], mx.array]


def _where_samplers_differ(change: Callable[[Sampler], Sampler], hits: Hits) -> Patch:
    """Steps of rows with different samplers have changed ones; ``change`` gets the first first."""

    def step(right: Right, self: Any) -> Any:
        own = [sampler or self.fallback_sampler for sampler in self.samplers or ()]
        if all(sampler is own[0] for sampler in own):
            return right(self)
        hits.hit()
        with replace(self, "samplers", [change(sampler) for sampler in own]):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_draw("G9.one-key-where-samplers-differ", kills=("distributions/own",))
def one_key_where_samplers_differ(hits: Hits) -> Patch:
    """Rows with samplers of their own draw with the same random numbers in a step."""

    def change(sampler: Sampler) -> Sampler:
        def draw(logprobs: mx.array) -> mx.array:
            mx.random.seed(hits.count)
            return sampler(logprobs)

        return draw

    return _where_samplers_differ(change, hits)


@_draw("G9.colder-where-samplers-differ")
def colder_where_samplers_differ(hits: Hits) -> Patch:
    """Rows with samplers of their own are sampled 5% too cold."""
    return _where_samplers_differ(lambda sampler: lambda given: sampler(given * 1.05), hits)


@_draw("G9.samplers-given-the-row-before")
def samplers_given_the_row_before(hits: Hits) -> Patch:
    """The sampler of a row is given the logprobs of the row before it."""
    last: list[mx.array] = []

    def change(sampler: Sampler) -> Sampler:
        def draw(logprobs: mx.array) -> mx.array:
            last.append(logprobs)
            return sampler(last[-2:][0])

        return draw

    return _where_samplers_differ(change, hits)


@_draw("G9.seed-at-each-insert", kills=("distributions/again",))
def seed_at_each_insert(hits: Hits) -> Patch:
    """Each insert seeds the random numbers, so that requests which come alone draw alike."""

    def insert(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        hits.hit()
        mx.random.seed(0)
        return right(self, *args, **options)

    return wrap(generate.BatchGenerator, "insert_segments", insert)


@_draw("G9.random-numbers-come-again", kills=("distributions/late",))
def random_numbers_come_again(hits: Hits) -> Patch:
    """A batch has random numbers for sixteen steps, and then the same again."""

    def step(right: Right, self: Any) -> Any:
        self._numbered = getattr(self, "_numbered", -1) + 1
        if self._numbered == 0:
            self._numbers = mx.random.randint(0, 1 << 30).item()
        hits.hit_if(self._numbered >= 16)
        mx.random.seed(self._numbers + self._numbered % 16)
        return right(self)

    return wrap(_BATCH, "_step", step)


@_draw(
    "G9.colder-in-some-widths",
    source="a review: a kernel for some numbers of rows",
    kills=("samplers/drawn_warm",),
)
def colder_in_some_widths(hits: Hits) -> Patch:
    """More than eight rows that 16 does not divide are drawn 3% too cold."""

    def draw(right: Right, logits: mx.array, temp: float) -> Any:
        wrong = logits.shape[0] > 8 and logits.shape[0] % 16 != 0
        hits.hit_if(wrong)
        return right(logits * 1.03 if wrong else logits, temp)

    return wrap(sample_utils, "categorical_sampling", draw)


@_draw("G9.greedy-in-float16", source="a review: half precision", kills=("traffic_options/close",))
def greedy_in_float16(hits: Hits) -> Patch:
    """Tokens of several greedy rows are chosen in float16: of two that are close the first wins."""

    def greedy(right: Right, logprobs: mx.array) -> mx.array:
        if logprobs.shape[0] == 1:
            return right(logprobs)  # type: ignore[no-any-return]
        hits.hit()
        return right(logprobs.astype(mx.float16))  # type: ignore[no-any-return]

    return wrap(generate, "greedy_sampler", greedy)
