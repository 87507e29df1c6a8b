"""What a schedule is large in is measured from the schedule alone, by what else it has."""

import pytest

from conformance.core.engine_options import Drafting, EngineOptions, KvQuant, PrefixCaching
from conformance.core.schedule import (
    Arrival,
    Asked,
    Media,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.core.token_choice import Processor, Sampler
from conformance.run.largest_values import PLAIN, LargestValues, features_of, quantities

ONE, TWO, THREE = (Request(name, tuple(range(n)), 3) for name, n in (("a", 2), ("b", 5), ("c", 4)))


def at(count, stage=Stage.DECODE):
    return Trigger("a", stage, count)


def schedule(*requests, **more):
    return Schedule("s", (Arrival(requests or (ONE, TWO)),), **more)


@pytest.mark.parametrize(
    ("made", "quantity", "value"),
    [
        (schedule(ONE, TWO, THREE), "requests in one call", 3),
        (schedule(ONE, TWO, THREE), "requests of one engine", 3),
        (schedule(ONE, TWO, THREE), "rows at once, at most", 3),
        (schedule(options=EngineOptions(completion_batch_size=1)), "rows at once, at most", 1),
        (schedule(options=EngineOptions(prefill_batch_size=1)), "rows in one prefill, at most", 1),
        (schedule(), "tokens of a prompt", 5),
        (schedule(), "tokens of an answer", 3),
        (schedule(), "keys of a row", 8),
        (schedule(options=EngineOptions(prefill_step_size=2)), "pieces of a prompt", 3),
        (schedule(Request("a", (1, 2), 1, segments=(1, 1))), "segments of a prompt", 2),
        (schedule(Request("a", (1,), 1, stop=((1,), (2, 3)))), "stop sequences of a request", 2),
        (schedule(Request("a", (1,), 1, stop=((1,), (2, 3)))), "tokens of a stop sequence", 2),
        (schedule(weigh=Weigh.CYCLES), "engines, one after another", 30),
        (schedule(Request("a", (1,), 1, tenant="x")), "tenants", 1),
        (
            schedule(Request("a", (1,), 1, processors=(Processor("k", {"bias": {"1": 4}}),))),
            "bias",
            1,
        ),
        (schedule(Request("a", (1,), 1, sampler=Sampler("k", {"top_k": 7}))), "top_k", 7),
        (schedule(Request("a", (1,), 1, asked=Asked(fields={"seed": 9}))), "seed", 9),
        (schedule(options=EngineOptions(drafting=Drafting("k", 4))), "tokens verified at once", 4),
        (
            schedule(ONE, TWO, options=EngineOptions(prefix_caching=PrefixCaching())),
            "tokens of a shared prefix",
            2,
        ),
    ],
)
def test_a_quantity_is_measured(made, quantity, value):
    assert quantities(made)[quantity] == value


def test_requests_that_wait_for_an_end_are_not_there_at_once():
    arrivals = (Arrival((ONE, TWO)), Arrival((THREE,), at(0, Stage.FINISHED)))
    assert quantities(Schedule("s", arrivals))["rows at once, at most"] == 2


def test_joins_are_counted_between_removals_not_before_or_after_them():
    late = [Request(str(n), (1,), 3) for n in range(6)]
    arrivals = (
        Arrival((ONE, TWO, THREE)),
        Arrival((late[0],), at(1)),
        Arrival(tuple(late[1:4]), at(3)),
        Arrival((late[4],), at(4)),
        Arrival((late[5],), at(9)),
    )
    removals = Removal(("b",), at(2)), Removal(("c",), at(5))
    found = quantities(Schedule("s", arrivals, removals))
    assert found["joins between removals"] == 4
    assert (found["removals"], found["removals in one call"]) == (2, 1)


def test_the_largest_is_kept_for_each_thing_that_a_schedule_has():
    found = LargestValues()
    found.add("mine", "plain", schedule(ONE))
    found.add("mine", "more", schedule(TWO))
    quantized = schedule(ONE, options=EngineOptions(kv=KvQuant(8)))
    found.add("mine", "quantized", quantized)
    (row,) = (row for row in found.table() if row.quantity == "tokens of a prompt")
    assert row.values == {PLAIN: 5, "quantized": 2}
    assert row.by == "more"


def test_a_schedule_says_what_it_has():
    media = Request("a", (1, 2), 1, media=(Media("image", (2, 2), span=(0, 1)),))
    options = EngineOptions(kv=KvQuant(8), drafting=Drafting("k"), prefix_caching=PrefixCaching())
    assert features_of(schedule(media, options=options)) == ("quantized", "drafts", "kept", "media")
    assert features_of(schedule()) == ()
