"""The oracles of a model: made once, extended in place of made anew, and never void."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from miniatures.library import (
    ForgetfulLibrary,
    ShakyLibrary,
    ToyLibrary,
)

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Continuation, Request, Schedule
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason, Stream
from conformance.reference.oracle import MIN_STEPS, Oracle, cut

DEFAULT = EngineOptions()


def oracle_of(library):
    return Oracle(library, library.load(None, dtype="float32", seed=0), "float32")


def ask(name="a", length=5, max_tokens=4, **more):
    return Request(name, tuple(range(1, length + 1)), max_tokens, **more)


# ----------------------------------------------------------------------------------------- cut


def stream(*tokens):
    return Stream(tokens, np.zeros((len(tokens), 8), np.float32))


@pytest.mark.parametrize(
    ("stop", "tokens", "reason"),
    [
        ((), (1, 2, 3, 1, 2), "length"),
        (((3,),), (1, 2, 3), "stop"),
        (((1,),), (1,), "stop"),
        (((2, 3),), (1, 2, 3), "stop"),
        (((7,),), (1, 2, 3, 1, 2), "length"),
        (((2, 7), (2, 3)), (1, 2, 3), "stop"),  # the first begins to match and fails
        (((1, 2, 7), (2, 3, 1)), (1, 2, 3, 1), "stop"),  # one inside the other's beginning
        (((3, 1), (3,)), (1, 2, 3), "stop"),  # whichever is complete first
        (((1, 2),), (1, 2), "stop"),
        (((1, 2, 3, 1, 2),), (1, 2, 3, 1, 2), "stop"),  # complete at the very last token
        (((1, 2, 9),), (1, 2, 3, 1, 2), "length"),  # complete one token after max_tokens
        (((), (3,)), (1, 2, 3), "stop"),
    ],
)
def test_a_stream_ends_with_its_first_complete_stop_sequence(stop, tokens, reason):
    got = cut(stream(1, 2, 3, 1, 2, 9), Request("a", (1,), 5, stop=stop))
    assert got.tokens == tokens
    assert got.finish_reason == FinishReason(reason)
    assert got.logprobs.shape == (len(tokens), 8)


def test_max_tokens_cut_a_longer_stream():
    got = cut(stream(1, 2, 3), Request("a", (1,), 2))
    assert (got.tokens, got.finish_reason) == ((1, 2), FinishReason.LENGTH)


small = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.lists(small, max_size=3))
def test_no_stop_sequence_is_complete_before_the_end(tokens, stops):
    got = cut(stream(*tokens), Request("a", (1,), len(tokens), stop=tuple(stops))).tokens
    text = "".join(map(str, got))
    assert not any("".join(map(str, stop)) in text[:-1] for stop in stops)
    stopped = any(text.endswith("".join(map(str, stop))) for stop in stops)
    assert stopped or got == tuple(tokens)


# --------------------------------------------------------------------------------------- streams


def test_a_stream_is_made_once_however_often_it_is_used():
    library = ToyLibrary()
    oracle = oracle_of(library)
    first = oracle.solo(ask(), DEFAULT, None)
    again = oracle.solo(ask("b"), DEFAULT, None)  # under another name
    shorter = oracle.solo(ask(max_tokens=2), DEFAULT, None)
    assert again.tokens == first.tokens
    assert shorter.tokens == first.tokens[:2]
    assert library.streams == [("a", MIN_STEPS)]


def test_a_longer_request_makes_the_stream_longer_and_keeps_what_it_was():
    library = ToyLibrary()
    oracle = oracle_of(library)
    first = oracle.solo(ask(), DEFAULT, None)
    longer = oracle.solo(ask(max_tokens=MIN_STEPS + 3), DEFAULT, None)
    assert len(longer.tokens) == MIN_STEPS + 3
    assert longer.tokens[:4] == first.tokens
    assert library.streams == [("a", MIN_STEPS), ("a", MIN_STEPS + 3)]
    oracle.solo(ask(max_tokens=MIN_STEPS + 1), DEFAULT, None)
    assert len(library.streams) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"sampler": Sampler("seeded", {"temperature": 1.0, "seed": 1})},
        {"processors": (Processor("library", {"logit_bias": {"3": 9.0}}),)},
    ],
)
def test_requests_that_choose_otherwise_have_streams_of_their_own(more):
    library = ToyLibrary()
    oracle = oracle_of(library)
    oracle.solo(ask(), DEFAULT, None)
    oracle.solo(ask(**more), DEFAULT, None)
    assert library.streams == [
        ("a", MIN_STEPS),
        ("a", 4),
    ]  # no more than needed: no other request shares it


def test_stop_sequences_do_not_make_another_stream():
    library = ToyLibrary()
    oracle = oracle_of(library)
    whole = oracle.solo(ask(max_tokens=5), DEFAULT, None)
    stopped = oracle.solo(ask(max_tokens=5, stop=((whole.tokens[1],),)), DEFAULT, None)
    assert stopped.tokens == whole.tokens[:2]
    assert len(library.streams) == 1


def test_a_stream_that_a_stop_sequence_ends_is_made_no_longer():
    library = ToyLibrary()
    oracle = oracle_of(library)
    oracle.least = 0
    known = oracle.solo(ask(max_tokens=3), DEFAULT, None)
    stop = ((known.tokens[2],),) if known.tokens[2] not in known.tokens[:2] else (known.tokens,)
    stopped = oracle.solo(ask(max_tokens=9, stop=stop), DEFAULT, None)
    assert (stopped.tokens, stopped.finish_reason) == (known.tokens, FinishReason.STOP)
    assert library.streams == [("a", 3)]
    oracle.solo(ask(max_tokens=9, stop=((-1,),)), DEFAULT, None)
    assert library.streams == [("a", 3), ("a", 9)]


@pytest.mark.parametrize(
    ("length", "sizes", "streams"),
    [
        (5, (2048, 512, 4), 1),  # all but the last token are cut: pieces of 4 cut nothing
        (5, (2048, 3), 2),
        (6, (2048, 4), 2),
        (1, (2048, 1), 1),
        (9, (3, 4), 2),
    ],
)
def test_piece_sizes_that_cut_nothing_share_a_stream(length, sizes, streams):
    library = ToyLibrary()
    oracle = oracle_of(library)
    for size in sizes:
        oracle.solo(ask(length=length), EngineOptions(prefill_step_size=size), None)
    assert len(library.streams) == streams


def test_a_bounded_cache_makes_another_stream_and_batch_sizes_do_not():
    library = ToyLibrary()
    oracle = oracle_of(library)
    for options in (DEFAULT, EngineOptions(max_kv_size=3), EngineOptions(completion_batch_size=2)):
        oracle.solo(ask(), options, None)
    assert len(library.streams) == 2


# ----------------------------------------------------------------------------------- going on

SOURCE = ask("source", max_tokens=5)
TO_THE_END = Request("more", (9, 8), 3, continues=Continuation("source"))
FROM_TWO = Request("fork", (9, 8), 3, continues=Continuation("source", 2))
CHAIN = Schedule("chain", (Arrival((SOURCE, TO_THE_END, FROM_TWO)),))


@pytest.mark.parametrize(("request_", "produced"), [(TO_THE_END, 5), (FROM_TWO, 2)])
def test_a_continued_request_sees_what_was_before_it(request_, produced):
    oracle = oracle_of(ToyLibrary())
    before = oracle.solo(SOURCE, DEFAULT, CHAIN).tokens[:produced]
    got = oracle.solo(request_, DEFAULT, CHAIN)
    whole = oracle.solo(Request("x", (*SOURCE.prompt, *before, 9, 8), 3), DEFAULT, None)
    assert got.tokens == whole.tokens
    assert np.array_equal(got.logprobs, whole.logprobs)


@pytest.mark.parametrize("by", ["max_tokens", "stop"])
def test_a_continuation_of_a_source_that_ends_elsewhere_is_another_stream(by):
    oracle = oracle_of(ToyLibrary())
    long = oracle.solo(TO_THE_END, DEFAULT, CHAIN)
    first = oracle.solo(SOURCE, DEFAULT, CHAIN).tokens[:1]
    ends = {"max_tokens": {"max_tokens": 1}, "stop": {"stop": (first,)}}[by]
    source = Request("source", SOURCE.prompt, **({"max_tokens": 5} | ends))
    short = oracle.solo(TO_THE_END, DEFAULT, Schedule("short", (Arrival((source, TO_THE_END)),)))
    whole = oracle.solo(Request("x", (*SOURCE.prompt, *first, 9, 8), 3), DEFAULT, None)
    assert np.array_equal(short.logprobs, whole.logprobs)
    assert not np.array_equal(short.logprobs, long.logprobs)


def test_the_noise_of_a_continued_request_is_measured_over_all_its_history():
    library = ToyLibrary()
    oracle = oracle_of(library)
    before = oracle.solo(SOURCE, DEFAULT, CHAIN).tokens[:2]
    got = oracle.solo(FROM_TWO, DEFAULT, CHAIN)
    noise = oracle.envelope(FROM_TWO, DEFAULT, CHAIN)
    assert len(noise.full) == len(got.tokens)
    assert set(library.passed) == {(*SOURCE.prompt, *before, 9, 8, *got.tokens[:-1])}


# ----------------------------------------------------------------------------------- noise


def test_the_floor_costs_no_run():
    library = ToyLibrary()
    oracle = oracle_of(library)
    floor = oracle.floor_envelope(oracle.solo(ask(), DEFAULT, None), DEFAULT)
    assert len(floor.full) == 4
    assert library.passes == 0


# ----------------------------------------------------------------------------------- stateless


def test_a_right_stream_agrees_with_the_pass_without_a_cache():
    oracle = oracle_of(ToyLibrary())
    found = oracle.check_stateless(ask(), DEFAULT)
    assert found.deviation.within_noise
    assert found.deviation.difference.tolist() == [0.0] * 4
    assert not oracle.doubtful


def test_a_stream_that_is_off_is_found_and_stays_doubtful():
    oracle = oracle_of(ForgetfulLibrary())
    found = oracle.check_stateless(ask(), DEFAULT)
    assert found.deviation.first_bad_step == 0
    assert found.envelope.measured
    assert oracle.doubtful
    assert oracle.check_stateless(ask("b"), DEFAULT) is found


def test_the_pass_ends_where_the_library_cannot_say_more():
    class Stopping(ToyLibrary):
        def stateless(self, model, request, tokens):
            return None if len(tokens) == 2 else super().stateless(model, request, tokens)

    found = oracle_of(Stopping()).check_stateless(ask(), DEFAULT)
    assert len(found.deviation.difference) == 2


def test_a_last_bit_is_excused_by_the_floor():
    library = ShakyLibrary()
    found = oracle_of(library).check_stateless(ask(), DEFAULT)
    assert found.deviation.within_noise
    assert library.passes == 0


@pytest.mark.parametrize(
    "request_",
    [
        ask(length=17),
        ask(processors=(Processor("library", {}),)),
        Request("b", (1,), 2, continues=Continuation("a")),
    ],
)
def test_what_the_pass_without_a_cache_cannot_compute_is_skipped(request_):
    assert oracle_of(ToyLibrary()).check_stateless(request_, DEFAULT) is None


def test_again_is_a_run_of_its_own():
    library = ToyLibrary()
    oracle = oracle_of(library)
    want = oracle.solo(ask(), DEFAULT, None)
    got = oracle.again(ask(), DEFAULT, steps=3)
    assert got.tokens == want.tokens[:3]
    assert library.streams == [("a", MIN_STEPS), ("a", 3)]
