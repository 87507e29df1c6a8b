"""Each contract counts right on a run written by hand, and fires where waste is planted."""

import dataclasses

import msgspec
import pytest
from miniatures.plays import Script

from conformance.checks.contract_counts import check_cost, costs
from conformance.checks.play import Play
from conformance.core.contracts import contracts
from conformance.core.engine_options import EngineOptions, KvQuant, PrefixCaching
from conformance.core.phases import ForwardCall, ServedStep
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import Alive, CachedLayer, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.core.verdict import Verdict


def played(script, *names, **options):
    script.schedule = msgspec.structs.replace(script.schedule, contracts=names)
    return script.play(engine="by_hand", **options)


def count(script, name, **options):
    """The count of one contract."""
    (cost,) = costs(played(script, name, **options))
    assert cost.contract == name
    return cost.count


def broken(script, name, **options):
    """The one finding of a broken contract; None if it is kept."""
    found = check_cost(played(script, name, **options))
    assert all(f.verdict is Verdict.COST and f.check == "contract_counts" for f in found)
    return found[0] if found else None


def test_a_schedule_without_contracts_is_not_counted():
    assert costs(Script().play()) == ()
    assert check_cost(Script().play()) == []


def test_positions_are_all_of_all_calls_over_those_that_are_needed():
    script = Script()
    # Prompts of 3, 2 and 1 tokens in two columns and a step; answers of 5, 3 and 2 tokens.
    computed = 3 * 2 + 3 + 3 + 2 + 1 + 1
    assert count(script, "positions") == pytest.approx(computed / (6 + 4 + 2 + 1), abs=1e-4)
    script.free.moments[0].forwards = [ForwardCall(3, 8)]
    assert "positions" in broken(script, "positions").got


def test_rows_too_many_are_counted_for_each_request():
    script = Script()
    before = count(script, "rows")
    script.free.moments[4].forwards = [ForwardCall(9, 1)]
    extra = 9 - Script().free.moments[4].forwards[0].batch
    assert count(script, "rows") == pytest.approx(before + extra / 3, abs=1e-4)


def test_a_gone_row_is_counted_by_steps():
    script = Script()
    assert count(script, "gone") == 0
    script.free.moments[3].forwards = [ForwardCall(3, 1)]
    assert broken(script, "gone").got.startswith("1 ")
    assert costs(played(script, "gone", staged=False)) == ()


def late(script, *, waits=0, calls=1, silent=False):
    """The run with a request that comes before step 2 and gets its token so many steps later."""
    script.schedule = msgspec.structs.replace(
        script.schedule,
        arrivals=(
            *script.schedule.arrivals,
            Arrival((Request("late", (1, 2), 2),), Trigger("a", Stage.DECODE, 1)),
        ),
    )
    script.want["late"] = script.want["b"]
    for moment in script.free.moments[2 : 2 + waits]:
        moment.stages["late"] = Stage.PREFILL
        moment.forwards += [ForwardCall(1, 1)] * calls
        if silent:
            moment.events = []
    script.free.moments[2 + waits].stages["late"] = Stage.DECODE
    script.free.moments[2 + waits].events.append(TokenEvent("late", 1))
    return script


def test_steps_to_the_first_token_of_a_late_request():
    assert count(late(Script(), waits=1), "first_token") == 2
    assert count(late(Script(), waits=3), "first_token") == 4


def test_steps_and_calls_that_others_wait():
    assert count(late(Script(), waits=2), "others_wait") == 0
    assert count(late(Script(), waits=2), "others_calls") == 1
    assert broken(late(Script(), waits=2, silent=True), "others_wait").got.startswith("2 ")
    assert broken(late(Script(), waits=2, calls=3), "others_calls").got.startswith("3 ")


def long_answer(reads=(), alive=None, pending=None):
    """A run of two rows in 31 steps, each with the same, or with what a function gives."""
    script = Script()
    first = script.free.moments[1]
    given = [TokenEvent(name, 1) for name in ("a", "b")]
    steps = [
        dataclasses.replace(
            first,
            stages={"a": Stage.DECODE, "b": Stage.DECODE},
            events=list(given),
            alive=None if alive is None else Alive(alive(step), 0),
            pending=None if pending is None else pending(step),
        )
        for step in range(31)
    ]
    script.free.moments[1:] = steps
    trace = script.play().traces[1]
    kept = [dataclasses.replace(s, reads=tuple(reads)) for s in trace.steps]
    return script, dataclasses.replace(trace, steps=tuple(kept))


def in_run(found, name, **options):
    script, trace = found
    play = dataclasses.replace(played(script, name, **options), traces=(trace,))
    return costs(play), check_cost(play)


def test_waits_of_the_host_beyond_the_single_streams_are_named_by_place():
    once = ("lib/engine.py:7 eval",)
    (cost,), findings = in_run(long_answer(once), "host_reads", alone=1.0)
    assert (cost.count, findings) == (0, [])
    (cost,), (finding,) = in_run(
        long_answer((*once, "lib/rope.py:3 tolist")), "host_reads", alone=1.0
    )
    assert cost.count == 1
    assert "lib/rope.py:3 tolist, 1 a step" in finding.what
    assert in_run(long_answer(once), "host_reads", alone=None) == ((), [])


@pytest.mark.parametrize("name", ["arrays", "graph"])
def test_what_grows_in_a_long_answer(name):
    field = "alive" if name == "arrays" else "pending"
    (flat,), none = in_run(long_answer(**{field: lambda step: 40 + step % 3}), name)
    assert (flat.count, none) == (0, [])
    (grown,), (finding,) = in_run(long_answer(**{field: lambda step: 40 + step}), name)
    assert grown.count == 10
    assert finding.check == "contract_counts"


@pytest.mark.parametrize(("bits", "smaller"), [(8, 3.6), (4, 6.4)])
def test_bytes_of_quantized_keys_are_those_of_the_formula(bits, smaller):
    plain, script = Script(), Script()
    for moment in plain.free.moments:
        moment.layers = (CachedLayer(64_000, quantized=False, dtypes=("float32",)),)
    trace = plain.play().traces[1]
    options = EngineOptions(kv=KvQuant(bits, group_size=64))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)

    def hold(nbytes):
        for moment in script.free.moments:
            moment.layers = (CachedLayer(nbytes, quantized=True),)

    right = 64_000 * (bits / 32 + 2 / 64)
    assert 64_000 / right == pytest.approx(smaller, rel=0.02)
    hold(int(right))
    assert broken(script, f"bytes_{bits}", plain=trace) is None
    assert count(script, f"bytes_{bits}", plain=trace) == pytest.approx(1)
    hold(int(2 * right))
    assert broken(script, f"bytes_{bits}", plain=trace).got.startswith("2 ")
    assert costs(played(script, f"bytes_{bits}")) == ()


def test_bytes_that_are_left():
    script = Script()
    script.free.held = 0
    assert broken(script, "bytes_left") is None
    script.free.held = 512
    assert broken(script, "bytes_left").got == "512 bytes"


def test_kept_tokens_that_are_computed_again():
    script = Script()
    prompt = tuple(range(1, 10))
    script.schedule = msgspec.structs.replace(
        script.schedule,
        arrivals=(
            Arrival((Request("a", prompt, 5),)),
            Arrival((Request("b", (*prompt, 3, 4), 3),), Trigger("a", Stage.FINISHED)),
        ),
        removals=(),
        options=EngineOptions(prefix_caching=PrefixCaching(block_size=4)),
    )
    # Nine tokens are shared, of which two blocks of four are whole.
    assert count(script, "prefix") == 8
    script.free.moments[1].reused = {"b": 9}
    assert broken(script, "prefix") is None
    script.free.moments[1].reused = {"b": 4}
    assert broken(script, "prefix").got.startswith("4 ")


def test_every_contract_is_counted_by_some_function():
    script = Script()
    names = tuple(contracts())
    play = played(script, *names)
    assert {cost.contract for cost in costs(play)} <= set(names)


def test_a_run_that_failed_is_not_counted():
    script = Script()
    script.free.out_of_steps = script.forced.out_of_steps = True
    assert costs(played(script, "positions")) == ()


OPTIONS = EngineOptions(busy=True, counted=True)
LATE = Request("late", tuple(range(1, 10)), 2)


def step(*calls, left=False):
    return ServedStep(tuple(ForwardCall(*call) for call in calls), 1000, left=left)


def counts(schedule, served, *, events=(), removed=None, left_over=None):
    output = StepOutput(tuple(events), served=tuple(served), left_over=left_over)
    steps = (
        Step(0, {}, StepOutput()),
        Step(1, {}, output, removed_from=removed or {}),
    )
    trace = Trace(schedule, Mode.FREE, steps)
    found = costs(
        Play(schedule, (trace,), {}, dict.get, dict.get, dict.get, engine="mlx_vlm_server")
    )
    return {cost.contract: cost.count for cost in found}


def late_on_a_server(served):
    schedule = Schedule(
        "late",
        (Arrival((LATE,)),),
        options=OPTIONS,
        contracts=("first_token", "others_wait", "others_calls"),
    )
    return counts(schedule, served, events=(TokenEvent("late", 1),))


DECODE = (1, 1)
PIECE, LAST, BOTH = step(DECODE, (1, 4)), step(DECODE, (1, 1)), step((2, 1))
RIGHT = (step(DECODE), PIECE, PIECE, LAST, BOTH, BOTH)


def test_a_late_prompt_is_counted_from_its_first_piece_to_its_first_token():
    assert late_on_a_server(RIGHT) == {"first_token": 4, "others_wait": 0, "others_calls": 1}


def test_a_row_that_waits_and_pieces_at_once_are_seen():
    waits = (step(DECODE), step(DECODE, (1, 4)), step((1, 4)), step((1, 4)), step((2, 1)))
    assert late_on_a_server(waits)["others_wait"] == 2
    at_once = (step(DECODE), step(DECODE, (1, 4), (1, 4), (1, 1)), step((2, 1)))
    assert late_on_a_server(at_once) == {"first_token": 2, "others_wait": 0, "others_calls": 3}


def test_pieces_of_prompts_are_counted_if_some_were_taken_together():
    short = Request("short", (1, 2, 3), 2)
    schedule = Schedule("two", (Arrival((short, LATE)),), options=OPTIONS, contracts=("positions",))
    together = (step(DECODE, (2, 4)), step(DECODE, (1, 4)), step(DECODE, (1, 1)), step((3, 1)))
    assert counts(schedule, together) == {"positions": 1.2}
    alone = (step(DECODE, (1, 2)), step((2, 1), (1, 8)))
    assert counts(schedule, alone) == {}


@pytest.mark.parametrize(("many", "share"), [(1, 0.01), (97, 0.97)])
def test_tokens_for_a_client_that_left_are_a_share_of_those_still_to_come(many, share):
    leaver, after = Request("leaver", (1, 2), 103), Request("next", (1, 2, 3), 2)
    schedule = Schedule(
        "left",
        (Arrival((leaver,)), Arrival((after,), Trigger())),
        (Removal(("leaver",), Trigger()),),
        options=OPTIONS,
        contracts=("left",),
    )
    before = [step((2, 1))] * 5  # for somebody
    gone = [step((2, 1), left=True)] * many
    then = [step((1, 1), left=True), step((1, 1), (1, 2), left=True), step((2, 1), left=True)]
    events = [TokenEvent("leaver", 1)] * 3
    removed = {"leaver": Stage.DECODE}
    found = counts(schedule, [*before, *gone, *then], events=events, removed=removed)
    assert found == {"left": share}


def test_bytes_at_rest_are_those_that_the_server_noted():
    schedule = Schedule("end", (Arrival((LATE,)),), contracts=("at_rest",))
    assert counts(schedule, [step((1, 1))], left_over=262852) == {"at_rest": 262852}
