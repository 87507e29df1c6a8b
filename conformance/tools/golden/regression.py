"""Compares the library's output now with a golden, in three ways.

The single stream is compared with the golden, the batch with the golden, and the batch with the
single stream now. All runs are fed the golden's tokens, so that each step can be compared.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.entries import Defect, Refusal, matches
from conformance.checks.forced import common_steps
from conformance.core import numerics
from conformance.core.engine import Capability, Engine
from conformance.core.errors import GoldenError
from conformance.core.grouping import compared
from conformance.core.numerics import Envelope
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.trace import Stream, Trace
from conformance.core.verdict import Verdict
from conformance.reference.noise import PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.subject import Subject
from conformance.run.runner import play
from conformance.scenarios.batch import RAGGED
from conformance.scenarios.media import MIXED_MODALITY
from conformance.tools.golden.compare import Comparison, common_shift, settle
from conformance.tools.golden.format import Golden, Recorded
from conformance.tools.golden.staging import WHOLE, requests_of


class Part(enum.StrEnum):
    """Which comparison failed."""

    REQUESTS = "requests"
    SINGLE = "single stream against golden"
    GOLDEN = "batched against golden"
    BATCH = "batched against single stream now"


@dataclass(frozen=True)
class Difference:
    """One failed comparison of one request.

    Attributes:
        text: what differs.
        engine: the engine that ran the batch; empty without a batch.
        schedule: the batch of the request.
        scenario: the rung that runs such a batch.
        verdict: of a case with this difference.
        known: the expectations' entries that explain it.
    """

    part: Part
    request_id: str
    text: str
    engine: str = ""
    schedule: str = ""
    scenario: str = ""
    verdict: Verdict = Verdict.DRIFT
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" ({self.engine}, batch {self.schedule})" if self.engine else ""
        known = f" [known: {', '.join(self.known)}]" if self.known else ""
        return f"{self.part}{where}: {self.text}{known}"


HOLDS = "the golden holds"

# Which comparisons differ: single stream and golden, batch and golden, batch and single stream now.
_MEANING = {
    (False, False, False): HOLDS,
    (True, True, False): "the library's output changed, single-stream and batched alike",
    (True, False, False): "the library's output changed, in a request that no batch holds",
    (True, False, True): "the single-stream output changed; the batch still gives the golden",
    (True, True, True): "the library's output changed, and the batch differs from it besides",
    (False, True, True): "the batch differs; the single stream still gives the golden",
    (False, True, False): "the batch differs from the golden, by less from the single stream",
    (False, False, True): "the batch differs from the single stream, by less from the golden",
}


def in_short(differences: Collection[Difference]) -> str:
    """Which of the comparisons failed, and what this means, in one line."""
    parts = {difference.part for difference in differences}
    if parts == {Part.REQUESTS}:
        return "the library makes other prompts than it did"
    return _MEANING[Part.SINGLE in parts, Part.GOLDEN in parts, Part.BATCH in parts]


@dataclass(frozen=True)
class Line:
    """One request: its golden, its single stream now, and how to measure its noise.

    ``single`` was fed the golden's tokens, so each step can be compared. ``wider`` measure its
    noise, from few runs and from many. A golden from another device was rounded differently:
    ``between_devices`` measure this, and ``shift`` is the part that all logprobs of a step share.
    """

    recorded: Recorded
    single: Stream
    wider: Sequence[Callable[[], Envelope]]
    between_devices: Sequence[Callable[[], Envelope]] = ()
    elsewhere: bool = False

    @cached_property
    def shift(self) -> np.ndarray:
        """See ``compare.common_shift``; 0 for a golden of this device."""
        assert self.single.logprobs is not None
        if not self.elsewhere:
            return np.zeros(len(self.single.logprobs))
        return common_shift(self.recorded, self.single.logprobs)

    def settle(self, logprobs: np.ndarray) -> Comparison:
        """Compare logprobs ``[steps, vocab]`` computed now with the golden."""
        rows = logprobs - self.shift[: len(logprobs), None]
        between = self.between_devices if self.elsewhere else ()
        return settle(self.recorded, rows, (*self.wider, *between))


@dataclass(frozen=True)
class Batch:
    """Requests that are decoded together; ``scenario`` is the rung with the same batch."""

    schedule: Schedule
    scenario: str


def batches(requests: Sequence[Request], engine: type[Engine]) -> Iterator[Batch]:
    """Text prompts in one ragged batch; each kind of media between the longest and a short one.

    If all requests hold media, they form one batch. The batches have the names of two scenarios and
    of their schedules, so that the scenarios' known defects apply here.
    """
    of_text = [r for r in requests if not r.media] or list(requests)
    yield Batch(Schedule("ragged", (Arrival(tuple(of_text)),)), RAGGED.name)
    if not engine.capabilities >= MIXED_MODALITY.needs:
        return
    beside = [r for r in of_text if r.request_id in ("long", "short")]
    for request in requests:
        if request not in of_text:
            name = f"{request.request_id}_beside_text"
            yield Batch(Schedule(name, (Arrival((request, *beside)),)), MIXED_MODALITY.name)


def batched_differences(
    subject: Subject, engine: type[Engine], lines: Mapping[str, Line]
) -> Iterator[Difference]:
    """The differences of an engine's batches from the golden and from today's single streams."""
    for batch in batches([line.recorded.request for line in lines.values()], engine):
        difference = partial(
            Difference,
            engine=engine.name,
            schedule=batch.schedule.name,
            scenario=batch.scenario,
        )
        trace = _played(subject, engine, batch.schedule, lines)
        if trace.failure is not None:
            verdict = Verdict.UNSUPPORTED if trace.failure.unsupported else Verdict.CRASH
            first = batch.schedule.requests[0].request_id
            yield difference(Part.BATCH, first, f"raised {trace.failure}", verdict=verdict)
            continue
        for request in batch.schedule.requests:
            name = request.request_id
            for part, text, verdict in _compared(lines[name], trace.stream(name)):
                yield difference(part, name, text, verdict=verdict)


def _played(
    subject: Subject, engine: type[Engine], schedule: Schedule, lines: Mapping[str, Line]
) -> Trace:
    """Run the batch, feeding it the golden's tokens if the engine can be forced."""
    tokens = {request.request_id: lines[request.request_id] for request in schedule.requests}
    forced = {name: line.recorded.tokens for name, line in tokens.items()}
    subject.library.churn()
    with subject.around(schedule.name):
        return play(
            engine,
            subject.model_for(engine),
            schedule,
            meter=subject.meter,
            forced=forced if Capability.FORCED in engine.capabilities else None,
        )


_Compared = tuple[Part, str, Verdict]


def _compared(line: Line, got: Stream) -> Iterator[_Compared]:
    """The differences of one row."""
    name = line.recorded.request.request_id
    if len(got.tokens) < len(line.recorded.tokens):
        text = f"ended after {len(got.tokens)} of {len(line.recorded.tokens)} tokens"
        yield Part.BATCH, f"request {name!r}: {text}", Verdict.PROTOCOL
        return
    if got.logprobs is None:
        yield from _by_tokens(line, got)
        return
    # Of a row that was not forced, only the steps with the golden's history are compared.
    steps = common_steps(got, line.single)
    rows = got.logprobs[:steps]
    found = line.settle(rows)
    verdict = _verdict(found, rows)
    if found.step is not None and found.step < steps:
        yield Part.GOLDEN, str(found), verdict
    text = _deviation(rows, line)
    if text:
        yield Part.BATCH, f"request {name!r}, {text}", verdict


def _by_tokens(line: Line, got: Stream) -> Iterator[_Compared]:
    """For an engine without full logprobs: its tokens, and their logprobs if it has them."""
    recorded = line.recorded
    for step, (token, want) in enumerate(zip(got.tokens, recorded.tokens, strict=False)):
        where = f"request {recorded.request.request_id!r}, step {step}"
        margin, noise = recorded.margins[step], recorded.noise[step]
        if token != want:
            if margin > 2 * numerics.FACTOR * noise:
                what = f"token {token} in place of {want} (margin {margin:.3g} nats)"
                yield Part.GOLDEN, f"{where}: {what}, noise {noise:.3g}", Verdict.DIVERGED
            return  # later steps have another history
        if got.token_logprobs is None:
            continue
        off = abs(
            float(got.token_logprobs[step] - line.shift[step]) - dict(recorded.top[step])[want]
        )
        if not off <= numerics.FACTOR * noise:
            what = f"token {token}: its logprob is {off:.3g} nats off, noise {noise:.3g}"
            yield Part.GOLDEN, f"{where}: {what}", Verdict.DRIFT
            return


def _verdict(found: Comparison, rows: np.ndarray) -> Verdict:
    if np.isnan(rows).any():
        return Verdict.NAN
    return Verdict.DRIFT if found.turned is None else Verdict.DIVERGED


def _deviation(rows: np.ndarray, line: Line) -> str:
    """How logprobs ``[steps, vocab]`` differ from the single stream; empty if within noise.

    The whole vocabulary is compared, although the golden keeps only the most likely tokens.
    """
    assert line.single.logprobs is not None
    want = line.single.logprobs[: len(rows)]
    floor = numerics.flat_envelope(len(rows), numerics.floor("float32", want))
    found, noise = numerics.settle(
        lambda noise: numerics.deviation(rows, want, noise), floor, line.wider
    )
    step = found.first_bad_step
    if step is None:
        return ""
    return (
        f"step {step}: logprobs {found.difference[step]:.3g} nats off, noise {noise.full[step]:.3g}"
    )


def differences(
    subject: Subject,
    engines: Sequence[type[Engine]],
    golden: Golden,
    expectations: Expectations | None = None,
) -> tuple[Difference, ...]:
    """All differences: in the requests, the single streams, and each engine's batches.

    A known difference of a batch names its entries in ``expectations``.

    Raises:
        GoldenError: the golden is of another model.
        ModelError: the library cannot decode a single stream.
    """
    # This comes first: some processors recognise only prompts that they have composed.
    found = list(_of_requests(subject, golden))
    elsewhere = golden.provenance.device != subject.library.device()
    lines = {r.request.request_id: _line(subject, r, elsewhere=elsewhere) for r in golden.requests}
    found += _single(lines.values())
    for engine in engines:
        for difference in batched_differences(subject, engine, lines):
            known = tuple(_known(subject, difference, expectations or Expectations()))
            found.append(replace(difference, known=known))
    return tuple(found)


def _of_requests(subject: Subject, golden: Golden) -> Iterator[Difference]:
    """Compare the requests, since a processor may now make different prompts."""
    now = {request.request_id: request for request in requests_of(subject)}
    before = {recorded.request.request_id: recorded.request for recorded in golden.requests}
    found = compared(before, now)
    texts = {
        **dict.fromkeys(found.came, "is not in the golden"),
        **dict.fromkeys(found.went, "is only in the golden"),
        **dict.fromkeys(found.changed, "has another prompt now, or other media"),
    }
    for name, text in sorted(texts.items()):
        yield Difference(Part.REQUESTS, name, f"request {name!r} {text}")


def _line(subject: Subject, recorded: Recorded, *, elsewhere: bool) -> Line:
    """One request's line; ``elsewhere``: the golden was made on another device."""
    vocabulary = subject.family.vocab_size
    request = recorded.request
    # A token past the vocabulary would be read out of bounds.
    if max(*request.prompt, *recorded.tokens) >= vocabulary and not request.media:
        raise GoldenError(
            f"request {request.request_id!r} has a token past the vocabulary of {vocabulary}: "
            "the golden is of another model"
        )
    single = subject.library.single_stream(
        subject.model,
        request,
        options=WHOLE,
        steps=len(recorded.tokens),
        forced=recorded.tokens,
    ).stream
    wider, between = _wider(subject, request, single)
    return Line(recorded, single, wider, between, elsewhere)


_Measures = tuple[Callable[[], Envelope], ...]


def _wider(subject: Subject, request: Request, stream: Stream) -> tuple[_Measures, _Measures]:
    """Noise at the golden's tokens, from few and from many runs; each is measured once.

    It includes the noise of media encoders, which single stream and batch have in common.
    """

    @functools.cache
    def measured(runs: int, *, encoders: bool = False) -> Envelope:
        return subject.oracle.noise_along(request, WHOLE, stream, runs=runs, encoders=encoders)

    few, many = (functools.partial(measured, runs) for runs in (PERTURBED_RUNS, THOROUGH_RUNS))
    between = functools.partial(measured, THOROUGH_RUNS, encoders=True)
    return (few, many), (between,) if request.media else ()


def _single(lines: Iterable[Line]) -> Iterator[Difference]:
    for line in lines:
        assert line.single.logprobs is not None
        found = line.settle(line.single.logprobs)
        if not found.holds:
            name = line.recorded.request.request_id
            yield Difference(Part.SINGLE, name, str(found))


def _known(subject: Subject, found: Difference, expectations: Expectations) -> Iterator[str]:
    """The entries that expect such a batch to differ at least as much, or to be unsupported."""
    family, versions = subject.family.name, subject.library.versions()
    if found.verdict is Verdict.UNSUPPORTED:
        yield from (r.id for r in expectations.refusals if _refuses(r, found, family))
        return
    for entry in expectations.defects:
        about = entry.is_about(found.engine, family) and entry.active(versions)
        if about and _expects(entry, found):
            yield entry.id


def _expects(entry: Defect, found: Difference) -> bool:
    if found.scenario not in entry.verdicts or not entry.claims(found.scenario, found.schedule):
        return False
    worst = max(verdict.severity for verdict in entry.wanted(found.scenario))
    # A golden is longer than its scenario, so a drift there may become another token here.
    verdict = Verdict.DRIFT if found.verdict is Verdict.DIVERGED else found.verdict
    return verdict.severity <= worst


def _refuses(refusal: Refusal, found: Difference, family: str) -> bool:
    return (
        refusal.text in found.text
        and matches(found.engine, refusal.engines)
        and matches(family, refusal.families)
        and matches(found.scenario, refusal.scenarios)
    )
