"""What the server keeps of finished requests, and what a later prompt takes of it."""

import itertools
from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache, LRUPromptCache

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.family import load_family
from conformance.core.pooled import KeptSequence
from conformance.core.schedule import Arrival, Request, Schedule, Stage, Trigger, Weigh
from conformance.plugins.mlx_lm.compat import prompt_caches
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_lm.plugin import FAMILIES
from conformance.plugins.mlx_lm.prefix_caching import (
    can_be_cut,
    held_bytes,
    shortest_stored,
    stored_sequences,
)
from conformance.run.runner import play

PROMPT = tuple(range(1, 10))
FIRST = Request("first", PROMPT, 2, segments=(4, 5))


@pytest.fixture(scope="module")
def recurrent():
    """A model of which no cache can be cut."""
    family = load_family(FAMILIES / "mamba2.json")
    return MlxLm().load(family, dtype="float32", seed=0)


def after(name, count):
    """A request with the first tokens of the prompt and two of its own."""
    return Request(name, (*PROMPT[:count], 30, 31), 2)


def run(model, *requests, **caching):
    """One request after the other; how many tokens each reused."""
    options = EngineOptions(prefix_caching=PrefixCaching(**caching))
    arrivals = [Arrival((requests[0],))]
    for before, request in itertools.pairwise(requests):
        arrivals.append(Arrival((request,), Trigger(before.request_id, Stage.FINISHED)))
    schedule = Schedule("s", tuple(arrivals), options=options)
    trace = play(MlxLmEngine, model, schedule, meter=MlxLm().meter(model))
    assert trace.failure is None
    assert trace.missed == ()
    assert trace.cache_bytes_at_end == 0
    for request in requests:
        solo = MlxLm().single_stream(model, request, options=EngineOptions(), steps=2)
        assert trace.stream(request.request_id).tokens == solo.stream.tokens
    return {name: n for step in trace.steps for name, n in step.output.reused.items()}


def test_a_prompt_goes_on_where_it_parts_from_one_before(model):
    assert run(model, FIRST, after("part", 6), after("more", 9)) == {"part": 6, "more": 9}


def test_of_an_equal_prompt_all_but_the_last_token_is_reused(model):
    assert run(model, FIRST, Request("again", PROMPT, 2)) == {"again": 8}


def test_a_cache_that_cannot_be_cut_is_reused_from_its_pieces_ends(recurrent):
    requests = FIRST, after("part", 6), Request("again", PROMPT, 2)
    assert run(recurrent, *requests) == {"part": 4, "again": 8}


def test_what_was_used_longest_ago_is_given_up(model):
    other = Request("other", (40, 41, 42), 2)
    assert run(model, FIRST, other, after("part", 6), snapshots=1) == {}
    assert run(model, FIRST, other, after("part", 6), snapshots=2) == {"part": 6}


def test_bytes_are_given_up_when_a_request_comes(model):
    requests = FIRST, after("part", 6), after("more", 9)
    assert run(model, *requests, max_bytes=1 << 30) == {"part": 6, "more": 9}
    # The next one still finds it, and leaves no room for it beside itself.
    assert run(model, *requests, max_bytes=0) == {"part": 6, "more": 6}


def test_a_store_that_takes_no_bound_refuses_one(model, monkeypatch):
    monkeypatch.delattr(prompt_caches(), "trim_to")
    options = EngineOptions(prefix_caching=PrefixCaching(max_bytes=0))
    with pytest.raises(Unsupported, match="does not support a bound of bytes"):
        MlxLmEngine(model, options).insert([Submission(FIRST)])


def test_of_a_removed_request_the_pieces_done_are_kept(model):
    engine = MlxLmEngine(model, EngineOptions(prefix_caching=PrefixCaching()))
    engine.insert([Submission(FIRST)])
    engine.step()
    engine.remove(["first"])
    engine.insert([Submission(after("part", 6))])
    assert engine.step().reused == {"part": 4}
    engine.close()


def test_a_cache_that_a_request_brings_is_refused(model):
    engine = MlxLmEngine(model, EngineOptions(prefix_caching=PrefixCaching()))
    with pytest.raises(Unsupported, match="is given none"):
        engine.insert([Submission(FIRST, prefix=([], []))])
    engine.close()


def test_sizes_of_blocks_cut_nothing(model):
    assert run(model, FIRST, after("part", 6), blocks=1, block_size=2, interval=9) == {"part": 6}


@pytest.mark.parametrize(("caching", "layers"), [(None, None), (PrefixCaching(), list("0123"))])
def test_the_cache_after_the_first_piece_is_weighed(recurrent, caching, layers):
    arrivals, options = (Arrival((FIRST,)),), EngineOptions(prefix_caching=caching)
    schedule = Schedule("s", arrivals, options=options, weigh=Weigh.STORED)
    kept = play(MlxLmEngine, recurrent, schedule, meter=MlxLm().meter(recurrent)).kept
    assert (kept and [layer.place for layer in kept.layers]) == layers
    # Of the inputs of four tokens a view of the last three holds the state's own and one more.
    assert kept is None or kept.counted <= kept.held <= 2 * kept.counted


def keys(count):
    cache = KVCache()
    cache.update_and_fetch(mx.ones((1, 1, count, 8)), mx.ones((1, 1, count, 8)))
    return cache


def states():
    cache = ArraysCache(2)
    cache[0], cache[1] = mx.ones((1, 3, 4)), mx.ones((1, 2))
    return cache


def test_each_kind_the_oldest_first():
    store = LRUPromptCache(4)
    store.insert_cache("m", [1, 2], [states()])
    store.insert_cache("m", [3], [states()], cache_type="system")
    store.insert_cache("m", [4, 5], [states()])
    kept, counted = stored_sequences(store)
    assert kept == (
        KeptSequence("assistant", (1, 2), 56, 56),
        KeptSequence("assistant", (4, 5), 56, 56),
        KeptSequence("system", (3,), 56, 56),
    )
    assert counted == {"assistant": (2, 112), "user": (0, 0), "system": (1, 56)}


def test_the_bytes_are_those_of_all_arrays():
    assert held_bytes([keys(3), states()]) == 2 * 256 * 8 * 4 + 56


def test_keys_can_be_cut_and_states_cannot():
    assert can_be_cut([keys(3)])
    assert not can_be_cut([keys(3), states()])


def test_a_store_without_kinds_is_not_known():
    assert stored_sequences(object()) is None


def test_the_shortest_is_given_itself():
    store = LRUPromptCache(4)
    assert shortest_stored(store) is None
    short = [states()]
    store.insert_cache("m", [1, 2, 3], [states()])
    store.insert_cache("m", [4, 5], short)
    store.insert_cache("m", [4, 5, 6], [states()])
    assert shortest_stored(store) is short
    store.trim_to(n_sequences=0)
    assert shortest_stored(store) is None


def test_the_tree_of_older_releases_has_other_names():
    short = [states()]
    entry, other = SimpleNamespace(prompt_cache=short), SimpleNamespace(prompt_cache=[])
    older = SimpleNamespace(_cache={"m": {7: {8: {"cache": entry, 9: {"cache": other}}}}})
    assert shortest_stored(older) is short
