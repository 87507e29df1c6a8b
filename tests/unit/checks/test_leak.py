"""Memory held after the end, and rows of no request."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.leak import check_leak
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Stage, Weigh
from conformance.core.trace import Alive, Failure, KeptCache, KeptLayer
from conformance.core.verdict import Verdict


@pytest.mark.parametrize(("run", "held"), [("free", 4096), ("forced", None), ("third", 4096)])
def test_bytes_held_at_the_end(run, held):
    """Some engines cannot report them; the third run is the first once more."""
    script = Script()
    take = script.repeat_forced() if run == "third" else getattr(script, run)
    take.held = held
    found = [(f.verdict, f.mode, f.got) for f in check_leak(script.play())]
    assert found == ([(Verdict.LEAK, "free", "4096 bytes")] if run == "free" else [])


@pytest.mark.parametrize(("run", "step", "rows", "live"), [("forced", 3, 3, 2), ("free", 7, 1, 0)])
def test_a_ghost_row_after_a_removal_and_after_the_last_finish(run, step, rows, live):
    script = Script()
    getattr(script, run).moments[step].forwards = [ForwardCall(rows, 1)]
    (found,) = check_leak(script.play())
    assert (found.verdict, found.mode) == (Verdict.LEAK, run)
    assert found.what == f"step {step} computed {rows} rows with {live} unfinished requests"


def test_a_row_that_ends_within_a_draft_may_be_in_the_next_call_and_no_longer():
    script = Script()
    options = EngineOptions(drafting=Drafting("kind"))
    script.free.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.free.moments[3].forwards = [ForwardCall(3, 1)]  # c was removed before this step
    assert check_leak(script.play()) == []
    script.free.moments[4].forwards = [ForwardCall(3, 1)]
    (found,) = check_leak(script.play())
    assert found.what == "step 4 computed 3 rows with 1 unfinished requests"


@pytest.mark.parametrize("field", ["failure", "out_of_steps"])
def test_a_run_without_an_end_may_hold_what_it_has(field):
    script = Script()
    script.forced.held = 4096
    setattr(script.forced, field, Failure("E", "m", "f:1", "s") if field == "failure" else True)
    assert check_leak(script.play()) == []


@pytest.mark.parametrize(
    ("held", "leaks"), [(0, False), (5000, False), (11_000, False), (11_025, True)]
)
def test_a_kept_cache_may_hold_a_little_more_than_it_counts_and_no_batch(held, leaks):
    script = Script()
    script.free.kept = KeptCache("a", 5000, held)
    found = [(f.verdict, f.mode, f.got, f.what) for f in check_leak(script.play())]
    what = "the cache of a reports 5000 bytes and held 11025"
    assert found == [(Verdict.LEAK, "free", "11025 bytes", what)] * leaks


@pytest.mark.parametrize(("held", "leaks"), [(18_208, False), (18_209, True)])
def test_a_layer_may_hold_what_a_contiguous_array_may(held, leaks):
    """16,384 bytes an array beside twice its own and the rounding. The whole is small enough."""
    script = Script()
    layers = (KeptLayer("0", 90_000, 90_000, 2), KeptLayer("3.1", 400, held, 1))
    script.free.kept = KeptCache("a", 90_400, 90_000 + held, layers)
    found = check_leak(script.play())
    assert [f.what for f in found] == leaks * [
        f"layer 3.1 of the cache of a reports 400 bytes and held {held}"
    ]


def test_of_a_cache_that_holds_too_much_layers_are_not_named_too():
    script = Script()
    script.free.kept = KeptCache("a", 400, 90_000, (KeptLayer("0", 400, 90_000, 1),))
    assert [f.what for f in check_leak(script.play())] == [
        "the cache of a reports 400 bytes and held 90000"
    ]


def alone(edges):
    """One request; after each of the steps in which it decodes the graph has so many edges."""
    script = Script(alone=True)
    for moment in script.free.moments:
        moment.pending = 0
    decoding = [m for m in script.free.moments if Stage.DECODE in m.stages.values()]
    for moment, count in zip(decoding, edges, strict=False):
        moment.pending = count
    return check_leak(script.play())


def test_a_graph_that_grows_while_the_same_rows_decode():
    (found,) = alone([10, 14, 18, 22])
    assert found.verdict is Verdict.LEAK
    grown = "the unevaluated graph behind the caches grew by 4 edges a step, from 10 to 22"
    assert found.what == grown


@pytest.mark.parametrize("edges", [(10, 10, 10, 10), (10, 14, 18, 18), (10, 14, 10, 14)])
def test_a_graph_that_stays_or_is_computed_now_and_then(edges):
    assert alone(edges) == []


def cycles(free, forced=None):
    """What is left after each cycle of requests, in a free run and in a forced one."""
    script = Script()
    script.free.left = tuple(free)
    script.forced.left = script.free.left if forced is None else tuple(forced)
    return [found.what for found in check_leak(script.play())]


def test_cycles_that_leave_more_and_more_of_many_kinds():
    """Of which those that anybody understands are named, and objects of Python last."""
    each = ("objects of builtins.list", "objects of mlx.core.array", "threads", "open files")
    assert cycles(dict.fromkeys(each, 7 + 2 * number) for number in range(30)) == [
        "30 equal cycles of requests leave more and more: "
        "open files 15 to 65; threads 15 to 65; objects of mlx.core.array 15 to 65"
    ]


def test_what_one_run_alone_leaves_is_not_of_the_requests():
    grows = [{"threads": number} for number in range(30)]
    assert cycles(grows, [{"threads": 9}] * 30) == []
    assert cycles([{}] * 30, grows) == []


@pytest.mark.parametrize(
    "counts",
    [
        [9] * 30,
        [*range(5), *[5] * 25],  # the first cycles make what is kept
        [number // 2 for number in range(30)],  # not in each cycle
        [number % 8 for number in range(30)],  # given back now and then
        list(range(30, 0, -1)),
    ],
)
def test_what_is_left_may_change(counts):
    assert cycles({"threads": count} for count in counts) == []


def lasting(counts, bytes_of=lambda count: 0):
    """One request that decodes; what lives after each of its steps."""
    script = Script(alone=True)
    moment = next(m for m in script.free.moments if Stage.DECODE in m.stages.values())
    script.free.moments = [
        dataclasses.replace(moment, events=[], alive=Alive(count, bytes_of(count)))
        for count in counts
    ]
    return [found.what for found in check_leak(script.play(staged=False))]


def test_a_list_that_keeps_an_array_of_each_step():
    grown = lasting(range(100, 300), bytes_of=lambda count: 64 * count)
    assert grown == [
        "in 200 steps of the same rows live arrays grew by 1 a step",
        "in 200 steps of the same rows bytes beside the caches grew by 64 a step",
    ]


@pytest.mark.parametrize(
    "counts",
    [
        [100] * 200,
        [*range(100, 120), *[120] * 180],  # the first steps make what is kept
        [100 + step % 50 for step in range(200)],  # what piles up is cleared now and then
        [100] * 90 + [400] * 110,  # a buffer is made late
        [100 + step % 2 + (step > 100) for step in range(200)],
        list(range(100, 249)),  # too short a run to say
        [100 + 544 * (step % 2) + 9 * (step // 97) for step in range(200)],
        list(range(300, 100, -1)),
        # Sizes of buffers are rounded: one is larger from some step on, another smaller.
        [100 + 262 * (step > 70) - 4 * (step > 120) for step in range(200)],
        # A row of logprobs is in flight for a while, and a buffer is made late.
        [100 + 792 * (65 <= step < 110) + 262 * (step >= 160) for step in range(200)],
    ],
)
def test_what_stays_or_is_cleared_is_no_growth(counts):
    assert lasting(counts) == []


def test_growth_that_is_cleared_in_part_is_growth():
    grown = lasting([1000 + step - 600 * (step // 100) for step in range(200)])
    assert grown == ["in 200 steps of the same rows live arrays grew by 1 a step"]


@pytest.mark.parametrize("weigh", [Weigh.ALIVE, Weigh.SAMPLED])
@pytest.mark.parametrize(("edges", "grows"), [(lambda step: step, 1), (lambda step: step % 50, 0)])
def test_a_graph_that_is_never_computed_in_a_long_run(weigh, edges, grows):
    script = Script(alone=True)
    script.schedule = msgspec.structs.replace(script.schedule, weigh=weigh)
    moment = next(m for m in script.free.moments if Stage.DECODE in m.stages.values())
    script.free.moments = [
        dataclasses.replace(moment, events=[], alive=Alive(9, 9), pending=edges(step))
        for step in range(200)
    ]
    found = [one.what for one in check_leak(script.play(staged=False))]
    grown = "in 200 steps of the same rows edges of the graph behind the caches grew by 1 a step"
    assert found == [grown] * grows


def test_growth_that_the_other_run_does_not_have_is_of_buffers_in_flight():
    def takes(*growing):
        script = Script(alone=True)
        for take, grows in zip((script.forced, script.free), growing, strict=True):
            moment = next(m for m in take.moments if Stage.DECODE in m.stages.values())
            counts = range(100, 300) if grows else [100] * 200
            take.moments = [
                dataclasses.replace(moment, events=[], alive=Alive(9, count)) for count in counts
            ]
        return check_leak(script.play(staged=False))

    assert takes(True, False) == takes(False, True) == takes(False, False) == []
    assert [found.mode for found in takes(True, True)] == ["forced", "free"]
