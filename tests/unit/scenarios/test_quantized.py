"""The schedules of quantized caches, and witnesses of what happened to their rows."""

import msgspec
import pytest
from miniatures.library import ToyLibrary, subject
from miniatures.right import ContinuousBatching

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import CachedLayer, Mode, Step, StepOutput, Trace
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import quantized as kept
from conformance.scenarios.quantized import QUANTIZED, START


def brief(*sizes, schemes=ToyLibrary.schemes):
    class Sized(ToyLibrary):
        def head_sizes(self, model):
            return frozenset(sizes)

    Sized.schemes = schemes
    return brief_for(subject(Sized()), ContinuousBatching, 0)


def schedules(*sizes, **more):
    return {schedule.name: schedule for schedule in QUANTIZED.make(brief(*sizes, **more))}


def settings(*sizes):
    made = (schedule.options.kv for schedule in QUANTIZED.make(brief(*sizes)))
    return {(kv.bits, kv.group_size) for kv in made if kv is not None and kv.scheme == "uniform"}


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [((64,), {32, 64}), ((32,), {32}), ((64, 96), {32}), ((16,), set()), ((64, 80), set())],
)
def test_groups_are_those_that_heads_can_be_cut_into(sizes, groups):
    assert settings(*sizes) == {(bits, group) for bits in (8, 4) for group in groups}


def test_turboquant_is_tried_with_every_head():
    kinds = [s.options.kv for s in schedules(16).values() if s.options.kv is not None]
    assert {kv.bits for kv in kinds} >= {3.5, 2.5}
    assert {kv.scheme for kv in kinds} == {"turboquant"}


def test_a_library_without_turboquant_is_asked_for_none():
    found = schedules(64, schemes=("uniform",))
    kinds = [s.options.kv for s in found.values() if s.options.kv is not None]
    assert {kv.scheme for kv in kinds} == {"uniform"}
    assert {s.options.kv.start for name, s in found.items() if "start" in name} == {START}
    assert set(schedules(64)) - set(found) == {
        *("turbo", "turbo_whole", "unpadded_turbo", "alone_turbo", "image_turbo"),
    }


def test_heads_that_such_a_library_cannot_cut_are_reported():
    with pytest.raises(Unsupported, match="heads of 8, 16 elements"):
        schedules(16, 8, schemes=("uniform",))


def test_a_family_without_such_layers_is_reported():
    with pytest.raises(Unsupported, match="no layer keeps keys and values"):
        schedules()


def test_a_schedule_without_quantization_is_there_to_compare_bytes_with():
    found = schedules(64)
    plain = found["plain"]
    for name in ("uniform_8_32", "uniform_4_64", "turbo"):
        assert found[name].arrivals == plain.arrivals
        assert msgspec.structs.replace(found[name].options, kv=None) == plain.options


def test_rows_leave_a_batch_without_padding():
    found = [s for name, s in schedules(64).items() if name.startswith("unpadded_")]
    assert [schedule.options.kv.scheme for schedule in found] == ["uniform", "turboquant"]
    for schedule in found:
        assert len({len(request.prompt) for request in schedule.requests}) == 1
        assert len({request.prompt for request in schedule.requests}) == len(schedule.requests)
        outputs = [request.max_tokens for request in schedule.requests]
        # The first rows leave one after the other, and the last one decodes on.
        assert outputs == sorted(set(outputs))
        assert outputs[-1] - outputs[-2] > 2


def test_prompts_lie_on_either_side_of_the_start():
    found = schedules(64)
    for name, sides in {
        "start_below": {False},
        "start_above": {True},
        "start_beside": {False, True},
        "start_above_joins": {False, True},
        "start_below_joins": {False, True},
    }.items():
        assert {len(r.prompt) >= START for r in found[name].requests} == sides, name
        assert found[name].options.kv.start == START
    crossing = found["start_below"].requests[0]
    assert len(crossing.prompt) < START < len(crossing.prompt) + crossing.max_tokens


def test_batches_of_one_are_compared_with_the_librarys_own_policy():
    alone = {name for name, s in schedules(64).items() if len(s.requests) == 1}
    assert alone == {"alone_uniform_8_32", "alone_uniform_4_32", "alone_turbo", "alone_start"}


def test_a_single_stream_that_fails_at_its_caches_is_reported_schedule_by_schedule():
    class Refuses(ToyLibrary):
        def single_stream(self, model, request, *, options, **more):
            if options.kv is not None and options.kv.scheme == "turboquant":
                raise NotImplementedError("turbo is not supported")
            return super().single_stream(model, request, options=options, **more)

    toy = subject(Refuses())
    made = QUANTIZED.make(brief_for(toy, ContinuousBatching, 0))
    outcome = judge_batched(toy, ContinuousBatching, QUANTIZED, made)
    found = {result.name: result.verdict for result in outcome.schedules}
    assert found["uniform_8_32"] is Verdict.EXACT
    assert found["turbo"] is Verdict.UNSUPPORTED
    assert outcome.verdict is Verdict.UNSUPPORTED


def test_bytes_are_reported_of_schedules_that_have_an_equal_one_without():
    toy = subject()
    made = QUANTIZED.make(brief_for(toy, ContinuousBatching, 0))
    results = judge_batched(toy, ContinuousBatching, QUANTIZED, made).schedules
    shares = {result.name: result.quantized_share for result in results}
    assert shares["turbo"] == pytest.approx(0.25)
    assert shares["plain"] is None
    assert shares["start_beside"] is None


Q, P, D, F = Stage.QUEUED, Stage.PREFILL, Stage.DECODE, Stage.FINISHED


def trace(*steps, quantized=True, start=4, lengths=(2, 6)):
    """A run of ``a`` and ``b``, given by their stages: ``QD`` is a queued, b in decode."""
    letters = {"Q": Q, "P": P, "D": D, "F": F}
    requests = tuple(
        Request(name, (1,) * length, 3) for name, length in zip("ab", lengths, strict=True)
    )
    options = EngineOptions(kv=KvQuant(8, start=start))
    schedule = Schedule("s", (Arrival(requests),), options=options)
    layers = (CachedLayer(8, quantized=False), CachedLayer(2, quantized))
    return Trace(
        schedule,
        Mode.FORCED,
        tuple(
            Step(
                index,
                {name: letters[letter] for name, letter in zip("ab", text, strict=True)},
                StepOutput(),
                layers=layers,
            )
            for index, text in enumerate(steps)
        ),
    )


@pytest.mark.parametrize(
    ("witness", "yes", "no"),
    [
        (kept.row_leaves(), ("DD", "DF"), ("DD", "FF")),
        (kept.row_leaves(), ("DD", "FD"), ("QD", "DD")),
        (kept.row_joins(), ("QD", "DD"), ("QQ", "DD")),
        (kept.row_joins(), ("DP", "DD"), ("DD", "DF")),
        (kept.either_side_of_start(), ("QQ", "PP"), ("DP", "FD")),
        (kept.either_side_of_start(), ("DD",), ("PD",)),
    ],
)
def test_what_happened_to_rows(witness, yes, no):
    assert witness.seen(trace(*yes))
    assert not witness.seen(trace(*no))


@pytest.mark.parametrize("witness", [kept.quantized(), kept.row_leaves(), kept.row_joins()])
def test_caches_must_be_quantized(witness):
    steps = ("QD", "DD", "DF")
    assert witness.seen(trace(*steps))
    assert not witness.seen(trace(*steps, quantized=False))


@pytest.mark.parametrize("lengths", [(2, 3), (4, 6)])
def test_rows_on_one_side_of_the_start_do_not_do(lengths):
    assert not kept.either_side_of_start().seen(trace("PP", "DD", lengths=lengths))
    assert not kept.either_side_of_start().seen(trace("PP", "DD", start=0, lengths=lengths))
