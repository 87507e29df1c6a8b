"""The three comparisons: each fails for what it is about, and for nothing else."""

import contextlib
import itertools

import msgspec
import numpy as np
import pytest
from miniatures import wrong
from miniatures.goldens import SensitiveLibrary, recorded, staged
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.checks.expectations import Defect, Expectations, Refusal
from conformance.core.engine import Capability
from conformance.core.errors import GoldenError
from conformance.core.schedule import Request
from conformance.core.trace import Stream, TokenEvent
from conformance.core.verdict import Verdict
from conformance.tools.golden.regression import (
    HOLDS,
    Difference,
    Line,
    Part,
    _by_tokens,
    differences,
    in_short,
)


@pytest.fixture(scope="module")
def golden():
    return staged().golden


class Heavier(SensitiveLibrary):
    """Loads other weights."""

    scale = 1.01


class EncodesOtherwise(SensitiveLibrary):
    """Its encoder of images rounds otherwise, as that of another device; ``seen``: it was moved."""

    off = 1 + 3e-5
    seen = False

    def single_stream(self, model, request, **more):
        with scaled(model, self.off if request.media else 1.0):
            return super().single_stream(model, request, **more)

    @contextlib.contextmanager
    def encoders_perturbed(self, model, *, ulps, seed):
        type(self).seen = True
        with scaled(model, 1 + 2e-5 * (-1) ** seed):
            yield


@contextlib.contextmanager
def scaled(model, by):
    before, model.scale = model.scale, np.float32(model.scale * by)
    yield
    model.scale = before


class Recomposed(SensitiveLibrary):
    """Its processor says otherwise what stands for an image."""

    def compose(self, model, parts):
        prompt, placed = super().compose(model, parts)
        return ((*prompt, 1), placed) if placed else (prompt, placed)


class Refuses(ContinuousBatching):
    def insert(self, submissions):
        raise NotImplementedError("no abacus has so many rows")


class Unfed(ContinuousBatching):
    """Chooses its own tokens."""

    capabilities = ContinuousBatching.capabilities - {Capability.FORCED}


class Scanty(Unfed):
    """Shows of each token its own logprob alone."""

    capabilities = Unfed.capabilities - {Capability.LOGPROBS}

    def emit(self, row, token, logprobs, reason):
        return [TokenEvent(row.name, token, None, float(logprobs[token]), reason)]


class ScantyAndWrong(Scanty, wrong.DriftsALittle): ...


class Mute(Unfed):
    """Shows tokens alone."""

    capabilities = Unfed.capabilities - {Capability.LOGPROBS}

    def emit(self, row, token, logprobs, reason):
        return [TokenEvent(row.name, token, finish_reason=reason)]


class MuteAndWrong(Mute, wrong.AttendsToPadding): ...


def parts(found):
    return {difference.part for difference in found}


def compare(golden, engine=ContinuousBatching, library=SensitiveLibrary, expectations=None):
    return differences(subject(library()), [engine], golden, expectations)


@pytest.mark.parametrize(
    "engine",
    [ContinuousBatching, Unfed, Scanty, Mute, wrong.RoundsOtherwise],
    ids=lambda e: e.__name__,
)
def test_what_is_right_up_to_rounding_holds(golden, engine):
    found = compare(golden, engine)
    assert found == ()
    assert in_short(found) == HOLDS


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [
        (wrong.AttendsToPadding, Verdict.DIVERGED),
        (wrong.DriftsALittle, Verdict.DRIFT),
        (wrong.NanInPadding, Verdict.NAN),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_batch_differs_from_the_golden_and_from_now(golden, engine, verdict):
    found = compare(golden, engine)
    assert parts(found) == {Part.GOLDEN, Part.BATCH}
    assert max((d.verdict for d in found), key=lambda v: v.severity) is verdict
    assert in_short(found) == "the batch differs; the single stream still gives the golden"
    assert {d.schedule for d in found} == {"ragged", "image_beside_text"}


def test_the_difference_is_reported_with_request_step_token_margin_and_noise(golden):
    first = next(d for d in compare(golden, wrong.DriftsALittle) if d.part is Part.GOLDEN)
    line = golden.requests[0]
    said, _, noise = str(first).rpartition(", noise ")
    assert said == (
        f"batched against golden (right, batch ragged): request 'two', step 0: token "
        f"{line.tokens[0]} (margin {line.margins[0]:.3g} nats), logprobs 0.001 nats off"
    )
    assert line.noise[0] <= float(noise) < 1e-5


def test_a_fault_that_is_put_in_around_the_engine_is_found(golden):
    loaded = subject(SensitiveLibrary())

    @contextlib.contextmanager
    def fault(_):
        before, loaded.model.scale = loaded.model.scale, loaded.model.scale * 2
        yield
        loaded.model.scale = before

    faulty = type(loaded)(**{**vars(loaded), "around": fault})
    assert parts(differences(faulty, [ContinuousBatching], golden)) == {Part.GOLDEN, Part.BATCH}


def test_other_weights_are_the_librarys_change_of_mind(golden):
    found = compare(golden, library=Heavier)
    assert parts(found) == {Part.SINGLE, Part.GOLDEN}
    assert in_short(found) == "the library's output changed, single-stream and batched alike"


def test_both_may_be_wrong(golden):
    found = compare(golden, wrong.DriftsALittle, Heavier)
    assert parts(found) == {Part.SINGLE, Part.GOLDEN, Part.BATCH}
    assert in_short(found) == (
        "the library's output changed, and the batch differs from it besides"
    )


def test_an_engine_without_logprobs_is_compared_by_its_tokens(golden):
    found = compare(golden, MuteAndWrong)
    assert parts(found) == {Part.GOLDEN}
    assert {d.verdict for d in found} == {Verdict.DIVERGED}


def test_an_engine_that_shows_one_logprob_is_compared_by_it(golden):
    found = compare(golden, ScantyAndWrong)
    assert parts(found) == {Part.GOLDEN}
    assert {d.verdict for d in found} == {Verdict.DRIFT}
    assert "its logprob is 0.001 nats off" in str(found[0])


def test_a_processor_that_changed_its_mind_is_reported(golden):
    found = compare(golden, library=Recomposed)
    assert [(d.part, d.text) for d in found] == [
        (Part.REQUESTS, "request 'image' has another prompt now, or other media")
    ]
    assert in_short(found) == "the library makes other prompts than it did"


def test_requests_that_came_and_went_are_reported(golden):
    fewer = msgspec.structs.replace(golden, requests=golden.requests[1:])
    assert [d.text for d in compare(fewer)] == ["request 'two' is not in the golden"]
    odd = msgspec.structs.replace(
        golden.requests[0],
        request=msgspec.structs.replace(golden.requests[0].request, request_id="odd"),
    )
    more = msgspec.structs.replace(golden, requests=(*golden.requests, odd))
    assert [d.text for d in compare(more)] == ["request 'odd' is only in the golden"]


def test_a_golden_of_another_model_is_reported(golden):
    line = msgspec.structs.replace(golden.requests[0], request=Request("two", (1, 999), 6))
    with pytest.raises(GoldenError, match="request 'two' has a token past the vocabulary of 32"):
        compare(msgspec.structs.replace(golden, requests=(line,)))


# What the expectations say ------------------------------------------------------------------------


def entry(**changed):
    given = {
        "id": "padding",
        "engines": ("right",),
        "families": ("toy",),
        "package": "toy",
        "versions": "==1",
        "where": "toy.py:1",
        "why": "it pads",
        "script": "s.py",
        "verdicts": {"ragged": Verdict.DIVERGED, "mixed_modality": Verdict.DIVERGED},
    }
    return Expectations((Defect(**{**given, **changed}),))


def unknown(golden, expectations, engine=wrong.AttendsToPadding, library=SensitiveLibrary):
    found = compare(golden, engine, library, expectations)
    assert found
    return {d.schedule for d in found if not d.known}


def test_a_known_defect_of_batches_is_reported_with_its_entry(golden):
    assert unknown(golden, entry()) == set()
    found = compare(golden, wrong.AttendsToPadding, expectations=entry())
    assert {d.known for d in found} == {("padding",)}
    assert str(found[0]).endswith("[known: padding]")


@pytest.mark.parametrize(
    "changed",
    [
        {"families": ("other",)},
        {"engines": ("other",)},
        {"versions": "==2"},
        {"verdicts": {"chunked": Verdict.DIVERGED}},
    ],
    ids=str,
)
def test_an_entry_about_something_else_explains_nothing(golden, changed):
    worst = [
        d
        for d in compare(golden, wrong.AttendsToPadding, expectations=entry(**changed))
        if d.verdict is Verdict.DIVERGED
    ]
    assert worst
    assert all(d.known == () for d in worst)


@pytest.mark.parametrize("verdict", [Verdict.DRIFT, Verdict.DIVERGED])
def test_drift_and_another_token_may_stand_for_each_other_but_not_for_nan(golden, verdict):
    numbers = entry(verdicts={"ragged": verdict, "mixed_modality": verdict})
    assert unknown(golden, numbers, wrong.AttendsToPadding) == set()
    assert unknown(golden, numbers, wrong.NanInPadding) == {"ragged", "image_beside_text"}


def test_an_entry_may_name_the_batch(golden):
    named = entry(schedules={"mixed_modality": ("image_beside_text",), "ragged": ("other",)})
    assert unknown(golden, named) == {"ragged"}


def test_no_entry_excuses_the_single_stream(golden):
    found = compare(golden, library=Heavier, expectations=entry())
    assert {d.part for d in found if not d.known} == {Part.SINGLE}


def test_what_an_engine_refuses_needs_the_text_of_an_entry(golden):
    refusal = Refusal(
        id="rows", engines=("right",), families=("*",), dtypes=("*",), text="so many rows",
        why="few rods", package="toy",
    )  # fmt: skip
    found = compare(golden, Refuses)
    assert {d.verdict for d in found} == {Verdict.UNSUPPORTED}
    assert "raised NotImplementedError: no abacus has so many rows" in str(found[0])
    assert unknown(golden, entry(), Refuses) == {"ragged", "image_beside_text"}
    assert unknown(golden, Expectations((), (refusal,)), Refuses) == set()
    other = msgspec.structs.replace(refusal, text="other words")
    assert unknown(golden, Expectations((), (other,)), Refuses) != set()


def of_single(found):
    return [difference.request_id for difference in found if difference.part is Part.SINGLE]


def test_the_rounding_of_encoders_explains_a_golden_of_another_device_alone(golden):
    assert of_single(compare(golden, library=EncodesOtherwise)) == ["image"]
    assert not EncodesOtherwise.seen
    source = msgspec.structs.replace(golden.provenance, device="slide rule")
    elsewhere = msgspec.structs.replace(golden, provenance=source)
    assert of_single(compare(elsewhere, library=EncodesOtherwise)) == []
    assert EncodesOtherwise.seen
    assert "image" in of_single(compare(elsewhere, library=Heavier))


def test_each_combination_has_a_meaning_of_its_own():
    runs = (Part.SINGLE, Part.GOLDEN, Part.BATCH)
    said = [
        in_short([Difference(part, "short", "") for part in parts])
        for count in range(4)
        for parts in itertools.combinations(runs, count)
    ]
    assert said[0] == HOLDS
    assert len(set(said)) == len(said) == 8


@pytest.mark.parametrize("part", list(Part))
def test_nothing_but_nothing_holds(part):
    assert in_short([Difference(part, "short", "")]) != HOLDS


def test_a_difference_names_its_batch_and_its_entries():
    alone = Difference(Part.SINGLE, "short", "request 'short': off")
    assert str(alone) == "single stream against golden: request 'short': off"
    batched = Difference(
        Part.GOLDEN, "short", "off", engine="toy", schedule="ragged", known=("a", "b")
    )
    assert str(batched) == "batched against golden (toy, batch ragged): off [known: a, b]"


GOLDEN = recorded(tokens=(3, 4), margins=(0.5, 0.25), noise=(1e-6, 1e-6))
VOCAB, SHIFT = 40_000, 1e-3


def rows(shift):
    table = np.full((2, VOCAB), -20.0, np.float32)
    for row, step in zip(table, GOLDEN.top, strict=True):
        for token, value in step:
            row[token] = value
    return table + np.float32(shift)


def line(*, elsewhere):
    return Line(GOLDEN, Stream(GOLDEN.tokens, rows(SHIFT)), (), elsewhere=elsewhere)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_shift_of_the_single_stream_holds_on_another_device_alone(elsewhere):
    assert line(elsewhere=elsewhere).settle(rows(SHIFT)).holds == elsewhere


def test_a_batch_that_is_shifted_by_more_than_the_single_stream_holds_nowhere():
    assert not line(elsewhere=True).settle(rows(SHIFT + 1e-4)).holds


@pytest.mark.parametrize("elsewhere", [True, False])
def test_so_do_the_logprobs_of_single_tokens(elsewhere):
    own = np.take_along_axis(rows(SHIFT), np.array(GOLDEN.tokens)[:, None], axis=-1)[:, 0]
    found = list(_by_tokens(line(elsewhere=elsewhere), Stream(GOLDEN.tokens, None, own)))
    assert (found == []) == elsewhere
