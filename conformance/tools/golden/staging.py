"""The gate for goldens: proposes one from a family's oracle, or says why it cannot.

Only ``stage`` makes a ``Staged``, and only a ``Staged`` is ever written: a batched run cannot
become a golden.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from conformance.checks.expectations import Expectations
from conformance.core import numerics
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ConformanceError, GoldenError, Unsupported
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.phases import Phases
from conformance.core.schedule import Request
from conformance.core.unavailable import error_text
from conformance.core.verdict import Verdict
from conformance.reference.subject import Subject
from conformance.tools.golden.changes import Changes, all_new, changes_between
from conformance.tools.golden.format import (
    Golden,
    Provenance,
    Recorded,
    golden_path,
    load_golden,
    to_text,
    write_whole,
)
from conformance.tools.golden.recipe import DTYPE, SEED, brief_of, golden_requests, recipe_hash

TOP = 8
"""The number of tokens at each step whose logprobs are kept."""

# Rounding to 5e-8 nats is at most a fifth of the smallest noise that is ever assumed, two ulps of
# float32 at 1. Seven significant digits would not suffice: they round a logprob of -12 by 5e-6.
_DECIMALS = 7


def record(
    request: Request, tokens: Sequence[int], logprobs: np.ndarray, noise: np.ndarray
) -> Recorded:
    """One line of a golden.

    Shapes:
        logprobs: ``[len(tokens), vocab]``, nats; noise: ``[len(tokens)]``, nats.

    Raises:
        GoldenError: a kept number is not finite.
    """
    logprobs = logprobs.astype(np.float64)
    top = np.argsort(-logprobs, axis=-1, kind="stable")[:, :TOP]
    kept = np.take_along_axis(logprobs, top, axis=-1)
    if np.isnan(logprobs).any() or not np.isfinite(kept).all():
        step = int(np.argmax(np.isnan(logprobs).any(axis=-1) | ~np.isfinite(kept).all(axis=-1)))
        raise GoldenError(f"request {request.request_id!r}: logprobs at step {step} are not finite")
    return Recorded(
        request=request,
        tokens=tuple(int(token) for token in tokens),
        margins=tuple(_figures(value) for value in numerics.margins(logprobs)),
        noise=tuple(_figures(value) for value in noise[: len(tokens)]),
        top=tuple(
            tuple(
                (int(i), round(float(v), _DECIMALS) + 0.0) for i, v in zip(ids, values, strict=True)
            )
            for ids, values in zip(top, kept, strict=True)
        ),
    )


def _figures(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


WHOLE = EngineOptions()
"""Prompts are prefilled whole, up to the library's own chunk size."""

_SINGLE = "single stream"


class _Gate(enum.Enum):
    """A key that only this module uses; an enum member keeps its identity when it is pickled."""

    PASSED = enum.auto()


@dataclass(frozen=True)
class Staged:
    """A golden that passed the gate."""

    golden: Golden
    key: _Gate

    def __post_init__(self) -> None:
        if self.key is not _Gate.PASSED:
            raise TypeError("only conformance.tools.golden.staging.stage makes a staged golden")


def stage(subject: Subject, expectations: Expectations | None = None) -> Staged:
    """The family's golden, computed and checked in every way that could show it to be wrong.

    The single stream must be finite, repeatable, and within its noise of the pass without a cache;
    the noise must be measurable; the model must be sensitive to small defects. A known
    disagreement between single stream and the pass without a cache is recorded with its entry.

    Raises:
        GoldenError: the gate refuses, in one sentence.
        ModelError: the library cannot run the family; has its message.
    """
    family, library = subject.family, subject.library
    where = f"{library.name}/{family.name}"
    weights = library.fingerprint(subject.model)  # before any use, which may change parameters
    requests = requests_of(subject)
    recorded = tuple(_recorded(subject, where, request) for request in requests)
    oracle = _cross_checked(subject, where, requests, expectations or Expectations())
    if family.checkpoint is None:  # a checkpoint's weights are given
        _check_sensitivity(subject, where)
    provenance = Provenance(
        recipe=recipe_hash(family),
        weights=weights,
        versions=library.versions(),
        device=library.device(),
        oracle=oracle,
    )
    golden = Golden(library.name, family.name, DTYPE, SEED, provenance, recorded)
    return Staged(golden, _Gate.PASSED)


def _check_sensitivity(subject: Subject, where: str) -> None:
    """Check that the model is sensitive to small defects."""
    measured = subject.library.sensitivity(subject.family, dtype=DTYPE, seed=SEED)
    if not measured.sensitive:
        raise GoldenError(
            f"{where}: no golden: the model is insensitive: its weakest signal is "
            f"{measured.ratio:.3g} times its rounding; `conformance audit calibrate` shows which"
        )


def requests_of(subject: Subject) -> tuple[Request, ...]:
    """The golden's requests, composed by the library's processor."""
    compose = subject.library.compose
    return golden_requests(brief_of(subject.family, lambda parts: compose(subject.model, parts)))


def with_verified(staged: Staged, old: Golden) -> Staged:
    """``staged`` with the verification of ``old``, if the verification still holds.

    It holds as long as the recipe and the library's release are unchanged.
    """
    package = staged.golden.library.replace("_", "-")
    mine, before = staged.golden.provenance, old.provenance
    same = mine.recipe == before.recipe and mine.weights == before.weights
    same = same and mine.versions.get(package) == before.versions.get(package)
    if before.verified is None or not same:
        return staged
    provenance = msgspec.structs.replace(mine, verified=before.verified)
    return Staged(msgspec.structs.replace(staged.golden, provenance=provenance), staged.key)


def _recorded(subject: Subject, where: str, request: Request) -> Recorded:
    stream = subject.oracle.solo(request, WHOLE, None)
    assert stream.logprobs is not None
    try:
        # This precedes the noise, which cannot be measured for a model that gives NaN.
        record(request, stream.tokens, stream.logprobs, np.zeros(len(stream.tokens)))
        noise = subject.oracle.envelope(request, WHOLE, None)
    except ConformanceError as error:
        raise GoldenError(f"{where}: no golden: {error}") from error
    _check_repeated(subject, where, request, stream.logprobs)
    return record(request, stream.tokens, stream.logprobs, noise.top)


def _check_repeated(subject: Subject, where: str, request: Request, first: np.ndarray) -> None:
    """Repeat the single stream with dirtied memory: it must not read uninitialised memory."""
    subject.library.churn()
    again = subject.library.single_stream(
        subject.model, request, options=WHOLE, steps=len(first)
    ).stream
    assert again.logprobs is not None
    floor = numerics.flat_envelope(len(first), numerics.floor(DTYPE, first))
    found = numerics.deviation(again.logprobs, first, floor)
    if not found.within_noise:
        raise GoldenError(
            f"{where}: no golden: the single stream of {request.request_id!r} differs from itself "
            f"by {found.difference.max():.3g} nats: it reads uninitialised memory"
        )


def _cross_checked(
    subject: Subject, where: str, requests: Sequence[Request], expectations: Expectations
) -> str:
    """A description of what the oracle's numbers were compared with."""
    checks = {r.request_id: subject.oracle.check_stateless(r, WHOLE) for r in requests}
    held = [name for name, check in checks.items() if check is not None]
    wrong = {
        name: check.deviation
        for name, check in checks.items()
        if check is not None and not check.deviation.within_noise
    }
    if not held:
        raise GoldenError(f"{where}: no golden: no request could be compared with a second oracle")
    if not wrong:
        return f"{_SINGLE}, within noise of the pass without a cache ({', '.join(held)})"
    name, found = next(iter(wrong.items()))
    known = ", ".join(known_disagreements(subject, expectations))
    if known:
        return f"{_SINGLE}, which the pass without a cache is known to contradict: {known}"
    raise GoldenError(
        f"{where}: no golden: the single stream of {name!r} and the pass without a cache differ by "
        f"{found.difference.max():.3g} nats, {found.ratio.max():.3g} times the noise, and no "
        "expectation explains it"
    )


def known_disagreements(subject: Subject, expectations: Expectations) -> Iterator[str]:
    """The entries that explain why the single stream differs from the pass without a cache."""
    versions = subject.library.versions()
    for entry in expectations.defects:
        if (
            entry.is_about(subject.library.name, subject.family.name)
            and entry.active(versions)
            and Verdict.ORACLE in (entry.wanted("repeat") if "repeat" in entry.verdicts else ())
        ):
            yield entry.id


@dataclass(frozen=True)
class Proposal:
    """The proposed update of one file.

    Attributes:
        staged: the new golden; ``None`` if the gate refused it, for the reason in ``refused``.
        changes: its differences from the old golden.
        damaged: why the old file could not be read; it is then replaced.
    """

    library: str
    family: str
    path: Path
    staged: Staged | None = None
    changes: Changes | None = None
    refused: str = ""
    unsupported: bool = False
    damaged: str = ""

    @property
    def label(self) -> str:
        """The family's name in reports."""
        return f"{self.library}/{self.family}"

    def lines(self) -> list[str]:
        """The changes in the new golden, and their causes."""
        return self.changes.lines(self.label) if self.changes else []

    @property
    def writes(self) -> bool:
        """Whether accepting the proposal writes the file."""
        return self.staged is not None and not (self.changes and self.changes.keep)


def load_subject(library: Library, family: Family) -> Subject:
    """Load the family's model with the settings of goldens.

    Raises:
        ModelError: the library cannot build or load it.
    """
    return Subject.load(library, family, dtype=DTYPE, seed=SEED, phases=Phases())


def propose(
    pair: tuple[Library, Family], *, root: Path, expectations: Expectations | None
) -> Proposal:
    """Stage the family's golden and compare it with the existing file; writes nothing."""
    library, family = pair
    path = golden_path(root, library.name, family.name)
    try:
        staged = stage(load_subject(library, family), expectations)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is why there is none
        text = str(error) if isinstance(error, ConformanceError) else error_text(error)
        unsupported = isinstance(error, Unsupported)
        return Proposal(library.name, family.name, path, refused=text, unsupported=unsupported)
    old, damaged = _old(path)
    if old is None:
        changes = all_new(staged.golden)
    else:
        staged = with_verified(staged, old)
        changes = changes_between(old, staged.golden)
    return Proposal(library.name, family.name, path, staged, changes, damaged=damaged)


def accept(proposals: Iterable[Proposal]) -> tuple[Path, ...]:
    """Write the files that change, each atomically; the others are not touched.

    Raises:
        GoldenError: a file cannot be written; files before it are updated, those after it are not.
    """
    written = []
    for proposal in proposals:
        if proposal.writes and proposal.staged is not None:
            write_whole(proposal.path, to_text(proposal.staged.golden))
            written.append(proposal.path)
    return tuple(written)


def _old(path: Path) -> tuple[Golden | None, str]:
    if not path.exists():
        return None, ""
    try:
        return load_golden(path), ""
    except ConformanceError as error:
        return None, str(error)
