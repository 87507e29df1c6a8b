"""What a script is written of: a failing schedule, made small, and its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.core.family import Recipe
from conformance.core.schedule import Request, Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.core.weights import Shape

FieldPath = tuple[str, ...]
"""Where a field is in nested tables."""


class Kind(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is held against what.

    Attributes:
        batch: requests in a batch, each against itself alone; else one stream against itself.
        crash: what is wrong raises.
        oracle: ``stateless`` or ``pieces``: the single stream against the pass without a cache, or
            prefill in pieces against prefill as a whole; empty of a batch.
        policy: the single stream is told itself how to quantize, as a user would tell it.
        called: an invalid call is not refused; nothing is decoded.
        weighed: what of the memory is looked at, as ``schedule.Weigh`` calls it.
    """

    batch: bool = True
    crash: bool = False
    oracle: str = ""
    policy: bool = False
    called: bool = False
    weighed: str = ""


class Symptom(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a schedule fails.

    Attributes:
        verdict: the worst.
        kind: what is compared.
        what: what the check said, or the exception; empty in a ``Reduction``.
        difference: the largest, in nats; ``noise`` is what rounding may move.
        mark: of an exception its type and file; two crashes with equal marks are one defect.
    """

    verdict: Verdict
    kind: Kind
    what: str = ""
    difference: float = 0.0
    noise: float = 0.0
    mark: str = ""

    def like(self, other: Symptom) -> bool:
        """Whether this one is as good to show as ``other``: of its kind, and nearly as loud."""
        if self.kind != other.kind or self.mark != other.mark:
            return False
        if (self.verdict is Verdict.NAN) != (other.verdict is Verdict.NAN):
            return False
        if self.kind.crash or self.verdict is Verdict.NAN:
            return True
        loud = self.difference >= min(other.difference, 0.1) / 2
        return loud and self.difference * other.noise >= min(
            other.difference * self.noise, 100 * self.noise * other.noise
        )


class Reduction(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a search finds: all else that a script is written of is read from the model.

    Attributes:
        schedule: the small one; its moments are told by step numbers.
        symptom: how it fails.
        left_out: paths of the config's fields that the library assumes anyway.
    """

    schedule: Schedule
    symptom: Symptom
    left_out: tuple[FieldPath, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Prompts that are embedded in one call.

    Attributes:
        names: of their requests, row by row.
        pad: the token that short rows are filled up with; ``right``: behind the prompt.
        given: what the processor gives beside ids and mask; ``padded``: those of them that are
            filled up like the ids, with 0. The others are joined as they are.
    """

    names: tuple[str, ...]
    pad: int = 0
    right: bool = False
    given: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A failing schedule and its model.

    Attributes:
        case: the case it is of.
        library: whose model it is.
        schedule: the small one; its moments are told by step numbers.
        symptom: how it fails; ``steps`` are the engine's steps that it takes.
        text: what is wrong, in words; ``place``: where, or in short.
        config: of the family, as the library reads it; ``vocab`` is its number of token ids.
        recipe: of its weights, ``shapes`` all floating parameters, ``seed`` that of the draw.
        packed: it has parameters that hold packed numbers; ``integers``: that hold whole numbers.
        model_file: a Python file that the library would read the model from; empty if none.
        processed: for each request with media what the processor gave beside token ids.
        joined: the batch's prompts, where they are embedded in one call; else each is by itself.
        follows: requests whose prompt is another's and all of its answer, and that other one.
        whole: the library cannot cut the prompts of this model when it decodes one alone.
        left_out: paths of the config's fields that the library assumes anyway; not in ``config``.
    """

    case: CaseId
    library: str
    schedule: Schedule
    symptom: Symptom
    steps: int
    text: str
    place: str
    config: dict[str, Any]
    vocab: int
    recipe: Recipe
    shapes: Mapping[str, Shape]
    seed: int
    packed: bool = False
    integers: bool = False
    model_file: str = ""
    processed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    joined: tuple[Joined, ...] = ()
    follows: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    left_out: tuple[FieldPath, ...] = ()

    @property
    def reduction(self) -> Reduction:
        """What ``gathered`` makes the same of again."""
        symptom = msgspec.structs.replace(self.symptom, what="")
        if not math.isfinite(symptom.difference):  # JSON has no such number
            symptom = msgspec.structs.replace(symptom, difference=0.0)
        return Reduction(self.schedule, symptom, self.left_out)

    @property
    def kind(self) -> Kind:
        """What is held against what."""
        return self.symptom.kind

    @property
    def verdict(self) -> Verdict:
        """How the schedule was judged."""
        return self.symptom.verdict

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the order of their arrival."""
        return self.schedule.requests

    @property
    def reached(self) -> str:
        """How the paths of all parameters begin that decide numbers: text alone sees no tower."""
        named = any(path.startswith("language_model.") for path in self.shapes)
        shown = any(self.processed.values())
        return "language_model." if self.library == "mlx_vlm" and named and not shown else ""

    @property
    def noise(self) -> float:
        """What rounding may move, in nats."""
        return self.symptom.noise

    @property
    def bound(self) -> float:
        """Halfway, in powers, between what rounding moves and what the defect does, in nats."""
        noise = max(self.noise, 1e-6)
        loud = self.symptom.difference
        return float((noise * loud) ** 0.5) if math.inf > loud > noise else 100 * noise
