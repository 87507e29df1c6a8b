"""What is not every engine's own is left out, and named."""

import pytest

from conformance.core.engine_options import Drafting, EngineOptions, KvQuant
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Media,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.core.token_choice import Processor, Sampler
from conformance.tools.vectors.portable import portable

SEEDED = Sampler("seeded", {"temperature": 0.8, "seed": 1})


def request(name, **more):
    return Request(name, (1, 2), 3, **more)


def plain(*requests, **more):
    return Schedule("s", (Arrival(requests or (request("a"),)),), **more)


@pytest.mark.parametrize(
    "schedule",
    [
        plain(),
        plain(options=EngineOptions(prefill_step_size=4)),
        plain(decode_on_other_thread=True),
        plain(request("a", stop=((3,),))),
        plain(request("a", sampler=Sampler("library", {"temp": 0.0}))),
        plain(request("a", sampler=Sampler("library", {"temp": 0.7, "top_k": 1}))),
        plain(request("a", processors=(Processor("library", {"logit_bias": {"1": 2.0}}),))),
    ],
)
def test_what_every_engine_can_do_is_kept_as_it_is(schedule):
    assert portable(schedule, "x") == (schedule, ())


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (plain(options=EngineOptions(kv=KvQuant(8))), "quantized"),
        (plain(options=EngineOptions(drafting=Drafting("d"))), "drafter"),
        (plain(options=EngineOptions(max_kv_size=8)), "max_kv_size"),
        (plain(probes=(Probe("p", Trigger()),)), "invalid calls"),
        (plain(weigh=Weigh.KEPT), "memory"),
        (plain(contracts=("positions",)), "costs"),
        (plain(request("a", media=(Media("image", (2, 2)),)), request("b")), "media"),
        (plain(request("a", processors=(Processor("grammar"),)), request("b")), "processor"),
        (plain(request("a", processors=(Processor("library", {"new": 1}),))), "processor"),
    ],
)
def test_a_schedule_that_is_one_librarys_own(schedule, reason):
    rest, (left,) = portable(schedule, "x")
    assert rest is None
    assert (left.scenario, left.schedule, left.request) == ("x", "s", "")
    assert reason in left.reason


@pytest.mark.parametrize(
    "more",
    [
        {"sampler": SEEDED},
        {"sampler": Sampler("library", {"temp": 0.7, "top_p": 0.01})},
        {"sampler": Sampler("library", {"temp": 0.0, "xtc_probability": 1.0})},
    ],
)
def test_a_request_that_is_one_librarys_own_is_taken_out(more):
    schedule = plain(request("a", **more), request("b"))
    rest, (left,) = portable(schedule, "x")
    assert rest == plain(request("b"))
    assert left.request == "a"
    assert portable(plain(request("a", **more)), "x") == (None, (left,))


@pytest.mark.parametrize(
    "more",
    [
        {"arrivals": (Arrival((request("c"),), Trigger("a", Stage.DECODE, 1)),)},
        {"arrivals": (Arrival((request("c", continues=Continuation("a")),)),)},
        {"removals": (Removal(("a",), Trigger("b", Stage.DECODE, 1)),)},
    ],
)
def test_what_waits_for_one_taken_out_goes_with_it(more):
    first = Arrival((request("a", sampler=SEEDED), request("b")))
    arrivals = (first, *more.get("arrivals", ()))
    rest, left = portable(Schedule("s", arrivals, removals=more.get("removals", ())), "x")
    assert rest is None
    assert left[-1].reason == "others wait for a, left out"
