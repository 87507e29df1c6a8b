"""What the server keeps of finished requests, and what a later prompt takes of it."""

import itertools

import pytest

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.family import load_family
from conformance.core.schedule import Arrival, Request, Schedule, Stage, Trigger, Weigh
from conformance.plugins.mlx_lm import inventory
from conformance.plugins.mlx_lm.compat import prompt_caches
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.run.runner import play

PROMPT = tuple(range(1, 10))
FIRST = Request("first", PROMPT, 2, segments=(4, 5))


@pytest.fixture(scope="module")
def recurrent():
    """A model of which no cache can be cut."""
    family = load_family(inventory.FAMILIES / "mamba2.json")
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
