"""The differences between two goldens of one family, by how much they matter to a reviewer."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.core import numerics
from conformance.core.grouping import compared
from conformance.core.numerics import Envelope
from conformance.tools.golden.format import Golden, Recorded


class Kind(enum.StrEnum):
    """How much a request changed, in ascending order."""

    UNCHANGED = "unchanged"
    NOISE = "changed within noise"
    MOVED = "logprobs moved"
    TOKENS = "tokens changed"
    REQUEST = "request changed"
    NEW = "new"
    GONE = "gone"

    @property
    def severity(self) -> int:
        """The position in the order of declaration."""
        return list(Kind).index(self)


@dataclass(frozen=True)
class Change:
    """The change of one request; ``text`` describes the place in one line."""

    request_id: str
    kind: Kind
    text: str = ""


@dataclass(frozen=True)
class Changes:
    """The changes of all requests, and their ``causes``: differences in provenance."""

    requests: tuple[Change, ...]
    causes: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """The worst kind of all requests."""
        kinds = (change.kind for change in self.requests)
        return max(kinds, key=lambda kind: kind.severity, default=Kind.UNCHANGED)

    @property
    def keep(self) -> bool:
        """Whether the old file is still correct, so that nothing is rewritten."""
        return self.kind is Kind.UNCHANGED and not any(
            cause.startswith(_DECISIVE) for cause in self.causes
        )

    def lines(self, label: str) -> list[str]:
        """The worst kind, the causes of the changes, and the change of each request, as text."""
        lines = [f"{label}: {self.kind}", *(f"    {cause}" for cause in self.causes)]
        for change in self.requests:
            text = f": {change.text}" if change.text else ""
            lines.append(f"    {change.request_id}: {change.kind}{text}")
        return lines


_DECISIVE = ("recipe", "weights", "dtype", "seed", "oracle")


def changes_between(old: Golden, new: Golden) -> Changes:
    """The differences of ``new`` from ``old``."""
    before, after = ({r.request.request_id: r for r in one.requests} for one in (old, new))
    found = compared(before, after)
    changes = [
        Change(name, Kind.NEW) if name in found.came else _change(*found.both[name])
        for name in after
    ]
    changes += [Change(name, Kind.GONE) for name in found.went]
    return Changes(tuple(changes), tuple(_causes(old, new)))


def all_new(golden: Golden) -> Changes:
    """The changes of a family that had no golden."""
    names = [recorded.request.request_id for recorded in golden.requests]
    return Changes(tuple(Change(name, Kind.NEW) for name in names))


def _causes(old: Golden, new: Golden) -> Iterator[str]:
    for field in ("library", "family", "dtype", "seed"):
        if getattr(old, field) != getattr(new, field):
            yield f"{field}: {getattr(old, field)} -> {getattr(new, field)}"
    for field in ("recipe", "weights"):
        mine, theirs = getattr(old.provenance, field), getattr(new.provenance, field)
        if mine != theirs:
            yield f"{field}: {mine[:12]} -> {theirs[:12]}"
    for field in ("device", "oracle"):
        mine, theirs = getattr(old.provenance, field), getattr(new.provenance, field)
        if mine != theirs:
            yield f"{field}: {mine} -> {theirs}"
    names = old.provenance.versions.keys() | new.provenance.versions.keys()
    versions = [
        {name: one.provenance.versions.get(name, "none") for name in sorted(names)}
        for one in (old, new)
    ]
    for name, (mine, theirs) in compared(*versions).changed.items():
        yield f"{name}: {mine} -> {theirs}"


def _change(old: Recorded, new: Recorded) -> Change:
    name = old.request.request_id
    if old.request != new.request:
        return Change(name, Kind.REQUEST, _request_change(old, new))
    steps = _common(old, new)
    noise = np.maximum(old.noise[:steps], new.noise[:steps])
    moved, difference = _moved(old, new, noise)
    diverged = steps if old.tokens != new.tokens else None
    if diverged is not None:
        # Both have the same history up to and including the step at which they diverge.
        step = diverged - 1
        if step >= min(len(old.tokens), len(new.tokens)) or old.tokens[step] == new.tokens[step]:
            return Change(name, Kind.TOKENS, f"{len(old.tokens)} -> {len(new.tokens)} tokens")
        margin = old.margins[step]
        near = margin <= 2 * numerics.FACTOR * float(noise[step])
        text = (
            f"step {step}: token {old.tokens[step]} -> {new.tokens[step]}, margin {margin:.3g} "
            f"nats, {margin / float(noise[step]):.3g} times the noise"
        )
        return Change(name, Kind.NOISE if near and moved is None else Kind.TOKENS, text)
    if moved is not None:
        size = difference[moved]
        text = f"step {moved}: {size:.3g} nats, {size / noise[moved]:.3g} times the noise"
        return Change(name, Kind.MOVED, text)
    return Change(name, Kind.UNCHANGED)


def _request_change(old: Recorded, new: Recorded) -> str:
    if old.request.prompt != new.request.prompt:
        lengths = f"{len(old.request.prompt)} -> {len(new.request.prompt)} tokens"
        return f"another prompt ({lengths})"
    return "another request for the same prompt"


def _common(old: Recorded, new: Recorded) -> int:
    """The number of steps with the same history, up to and including the first different token."""
    for step, (mine, theirs) in enumerate(zip(old.tokens, new.tokens, strict=False)):
        if mine != theirs:
            return step + 1
    return min(len(old.tokens), len(new.tokens))


def _moved(old: Recorded, new: Recorded, noise: np.ndarray) -> tuple[int | None, np.ndarray]:
    """The first step whose logprobs exceed the noise, and the differences ``[steps]``.

    Only tokens in both lists are compared; a token that left the list changes the others too.
    """
    pairs = [(dict(a), dict(b)) for a, b in zip(old.top, new.top, strict=False)][: len(noise)]
    differences = np.array(
        [max((abs(a[t] - b[t]) for t in a.keys() & b.keys()), default=np.inf) for a, b in pairs]
    )
    # One column, so that the same rule applies to a difference as in any run.
    column = differences[:, None]
    envelope = Envelope(noise, noise, float(noise.min(initial=np.inf)))
    if not len(column):
        return None, differences
    found = numerics.deviation(column, np.zeros_like(column), envelope)
    return found.first_bad_step, differences
