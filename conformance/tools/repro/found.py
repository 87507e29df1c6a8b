"""The data of a script: a failing schedule, shrunk, and its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.core.family import Recipe
from conformance.core.repro_calls import ReproCalls
from conformance.core.schedule import Request, Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.core.weights import Shape

FieldPath = tuple[str, ...]
"""Where a field is in nested tables."""


class Kind(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a script compares.

    Attributes:
        batch: requests in a batch, each with its single stream; else a single stream with itself.
        crash: the defect is an exception.
        oracle: ``stateless`` or ``pieces``: the single stream with the pass without a cache, or
            prefill in pieces with prefill as a whole; empty for a batch.
        policy: the single stream gets the arguments for quantization, as from a user.
        called: an invalid call does not raise; nothing is decoded.
        weighed: the memory that is measured, a value of ``schedule.Weigh``.
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
        what: the text of the finding, or the exception; empty in a ``Reduction``.
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
        """Whether it is of the same kind as ``other``, and its difference nearly as large."""
        if self.kind != other.kind or self.mark != other.mark:
            return False
        if (self.verdict is Verdict.NAN) != (other.verdict is Verdict.NAN):
            return False
        if self.kind.crash or self.verdict is Verdict.NAN:
            return True
        large = self.difference >= min(other.difference, 0.1) / 2
        return large and self.difference * other.noise >= min(
            other.difference * self.noise, 100 * self.noise * other.noise
        )


class Reduction(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a search finds: all else that a script is written of is read from the model.

    Attributes:
        schedule: the small one; its events happen at step numbers.
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
        pad: the padding token of short rows; ``right``: the padding is on the right.
        given: the processor's outputs besides ids and mask; ``padded``: those of them that are
            padded like the ids, with 0. The others are concatenated.
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
        case: the case of the schedule.
        library: the library of the model.
        schedule: the shrunk one; its events happen at step numbers.
        symptom: how it fails; ``steps`` is the number of the engine's steps.
        text: what is wrong; ``place``: where, or in short.
        config: of the family, as the library reads it; ``vocab`` is its number of token ids.
        recipe: of its weights, ``shapes`` all floating parameters, ``seed`` that of the draw.
        packed: it has parameters that hold packed numbers; ``integers``: that hold integers.
        model_file: a Python file that the library reads the model from; empty if none.
        processed: for each request with media the processor's outputs besides token ids.
        joined: the batch's prompts, if they are embedded in one call.
        follows: for requests whose prompt is another one's prompt and answer, that other one.
        whole: the library cannot prefill single streams of this model in pieces.
        left_out: paths of the config's fields that are the library's defaults.
        driven: the calls of an engine of another package.
        experts: it multiplies experts in half precision, which mlx itself does not here.
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
    driven: ReproCalls | None = None
    experts: bool = False

    @property
    def reduction(self) -> Reduction:
        """What ``gathered`` makes the same of again."""
        symptom = msgspec.structs.replace(self.symptom, what="")
        if not math.isfinite(symptom.difference):  # JSON has no such number
            symptom = msgspec.structs.replace(symptom, difference=0.0)
        return Reduction(self.schedule, symptom, self.left_out)

    @property
    def kind(self) -> Kind:
        """What the script compares."""
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
        """The prefix of the paths of all parameters with an effect: without media no towers."""
        named = any(path.startswith("language_model.") for path in self.shapes)
        shown = any(self.processed.values())
        return "language_model." if self.library == "mlx_vlm" and named and not shown else ""

    @property
    def noise(self) -> float:
        """What rounding may move, in nats."""
        return self.symptom.noise

    @property
    def bound(self) -> float:
        """The geometric mean of the noise and the defect's difference, in nats."""
        noise = max(self.noise, 1e-6)
        difference = self.symptom.difference
        return float((noise * difference) ** 0.5) if math.inf > difference > noise else 100 * noise
