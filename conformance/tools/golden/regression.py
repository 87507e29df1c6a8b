"""Compares the library's output now with a golden, in three ways.

The single stream is compared with the golden, the batch with the golden, and the batch with the
single stream now. All runs are fed the golden's tokens, so that each step can be compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.entries import Defect, Refusal, matches
from conformance.core.before_after import compared
from conformance.core.engine import Engine
from conformance.core.errors import GoldenError
from conformance.core.numerics import Envelope
from conformance.core.schedule import Request
from conformance.core.trace import Stream
from conformance.core.verdict import Verdict
from conformance.reference.noise import PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.subject import Subject
from conformance.tools.golden.batched import Line, batched_differences
from conformance.tools.golden.difference import Difference, Part
from conformance.tools.golden.format import Golden, Recorded
from conformance.tools.golden.staging import WHOLE, requests_of


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
