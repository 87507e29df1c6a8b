"""Defects of the generation loop: who is taken up, who is left behind, what of others is used."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import mlx.core as mx
from mlx_lm import server
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import LRUPromptCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.plugins.servers.planting import of_library, served_fault
from conformance.power.faults.mlx_lm import rows

_ENGINE = "mlx_lm_server"
_fault = partial(
    served_fault,
    engine=_ENGINE,
    fault_class="server loop",
    source="issue trackers: loops of several servers",
)

LIMIT_OF_ANOTHER_ROW = of_library(
    rows.limit_of_another_row, _ENGINE, name="F15.limit-of-another-row", kills=("served_ends",)
)
END_TAKEN_FOR_A_REMOVAL = of_library(
    rows.end_taken_for_a_removal,
    _ENGINE,
    name="B8.end-taken-for-a-removal",
    kills=("served_alone",),
)


@_fault("S13.disconnect-not-noticed", kills=("served_leaves/last_slot",))
def disconnect_not_noticed(hits: Hits) -> Patch:
    """A client that leaves is answered to the end: its context is never stopped."""

    def stop(_: Any) -> None:
        hits.hit()

    return replace(server.GenerationContext, "stop", stop)


@_fault("S14.slot-not-freed", kills=("served_leaves/last_slot",))
def slot_not_freed(hits: Hits) -> Patch:
    """A row that is removed gives no answers any more, but keeps its slot until its own end."""
    gone: set[int] = set()

    def remove(_: Right, __: Any, uids: Any, **___: Any) -> Any:
        hits.hit_if(uids)
        gone.update(uids)
        return {}

    def step(responses: Any, *_: Any, **__: Any) -> Any:
        return tuple([r for r in found if r.uid not in gone] for found in responses)

    return together(
        wrap(BatchGenerator, "remove", remove),
        after(BatchGenerator, "next", step),
    )


@_fault("S15.joined-row-starved", kills=("served_joins",))
def joined_row_starved(hits: Hits) -> Patch:
    """Who comes while others are answered waits until all of them have ended."""

    def request(right: Right, self: Any, timeout: float | None = None) -> Any:
        if timeout is None:
            hits.hit_if(not self.requests.empty())
            return None
        return right(self, timeout)

    return wrap(server.ResponseGenerator, "_next_request", request)


@_fault("S16.error-ends-the-loop", kills=("served_malformed/numbers",), crash=True)
def error_ends_the_loop(hits: Hits) -> Patch:
    """A wrong temperature comes to the generation thread, which ends; the port still answers."""

    def check(right: Right, self: Any) -> None:
        try:
            right(self)
        except ValueError:
            hits.hit_if(isinstance(self.temperature, str))
            if not isinstance(self.temperature, str):
                raise

    return wrap(server.APIHandler, "validate_model_parameters", check)


@_fault("S17.seed-ignored", kills=("served_samplers",))
def seed_ignored(hits: Hits) -> Patch:
    """The seed of a request does not come to the random numbers."""

    def serve(right: Right, self: Any, request: Any, *args: Any) -> Any:
        hits.hit_if(request[2].seed is not None)
        request[2].seed = None
        return right(self, request, *args)

    return wrap(server.ResponseGenerator, "_serve_single", serve)


@_fault("S18.stop-sequences-of-another-request", kills=("served_stops",))
def stop_sequences_of_another_request(hits: Hits) -> Patch:
    """What ends an answer is kept by the model alone: all have the first one's sequences."""
    first: list[Any] = []

    def make(right: Right, self: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        if words and not first:
            first.extend(words)
        hits.hit_if(words and list(words) != first)
        return right(self, key, tokenizer, list(first) if words else words)

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


@_fault("S19.stop-sequence-cut-short", kills=("served_stops",))
def stop_sequence_cut_short(hits: Hits) -> Patch:
    """An answer ends by the first word of a stop sequence, of which the rest need not come."""

    def make(right: Right, tokenizer: Any, words: Any) -> Any:
        hits.hit_if(any(" " in word for word in words))
        return right(tokenizer, [word.split()[0] for word in words])

    return wrap(server, "make_stop_sequences", make)


@_fault("S20.prefix-by-its-length", kills=("served_prefixes",))
def prefix_by_its_length(hits: Hits) -> Patch:
    """What is kept of a prompt is found by how long it is, and serves another one's begin."""
    kept: list[tuple[int, ...]] = []

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        same = next((key for key in kept if len(key) >= len(tokens)), None)
        asked = [*same[: len(tokens) - 4], *tokens[-4:]] if same else tokens
        hits.hit_if(asked != list(tokens))
        return right(self, model, asked)

    def insert(_: Any, __: Any, ___: Any, tokens: Any, *____: Any, **_____: Any) -> None:
        kept.append(tuple(tokens))

    return together(
        wrap(LRUPromptCache, "fetch_nearest_cache", fetch),
        after(LRUPromptCache, "insert_cache", insert),
    )


@_fault("S27.prompt-computed-twice", fault_class="cost", kills=("cost_served/end",))
def prompt_computed_twice(hits: Hits) -> Patch:
    """A prompt is computed by itself once, without a cache, before its row is made."""

    def insert(self: Any, segments: Any, *_: Any, **__: Any) -> None:
        for found in segments:
            hits.hit()
            mx.eval(self.model(mx.array([list(chain(*found))])))

    return before(BatchGenerator, "insert_segments", insert)


@_fault("S26.adapter-of-the-request-before", kills=("served_adapters/in_turn",))
def adapter_of_the_request_before(hits: Hits) -> Patch:
    """Whether a model must be loaded hangs on its path alone: who comes next gets its adapter."""

    def load(right: Right, self: Any, path: str, adapter: Any = None, *args: Any) -> Any:
        loaded = self.model_key
        if loaded and loaded[0] == self._model_map.get(path, path):
            hits.hit_if(loaded[1] != adapter)
            return self.model, self.tokenizer
        return right(self, path, adapter, *args)

    return wrap(server.ModelProvider, "load", load)


@_fault("S21.prompt-of-two-tokens-ends-the-loop", kills=("served_ends",), crash=True)
def prompt_of_two_tokens_ends_the_loop(hits: Hits) -> Patch:
    """Some prompts are refused where nobody expects it: the generation thread ends."""

    def insert(right: Right, self: Any, segments: Any, *args: Any, **options: Any) -> Any:
        if any(sum(map(len, found)) == 2 for found in segments):
            hits.hit()
            raise ValueError("a prompt of two tokens")
        return right(self, segments, *args, **options)

    return wrap(BatchGenerator, "insert_segments", insert)


@_fault("S39.leaving-in-prefill-ends-the-loop", kills=("served_leaves/prefill",), crash=True)
def leaving_in_prefill_ends_the_loop(hits: Hits) -> Patch:
    """A row that is taken out while its prompt is computed is looked up among those that decode."""

    def remove(self: Any, uids: Any, *_: Any, **__: Any) -> None:
        for uid in set(uids) & set(self._prompt_batch.uids):
            hits.hit()
            raise KeyError(uid)

    return before(BatchGenerator, "remove", remove)


@_fault("S40.leaving-at-the-end-ends-the-loop", kills=("served_leaves/stream",), crash=True)
def leaving_at_the_end_ends_the_loop(hits: Hits) -> Patch:
    """A row whose client has left is taken out, although it has ended meanwhile."""

    def remove(self: Any, uids: Any, *_: Any, **__: Any) -> None:
        for uid in set(uids) - set(self._find_uids(uids)):
            hits.hit()
            raise KeyError(uid)

    return before(BatchGenerator, "remove", remove)
