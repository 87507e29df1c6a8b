"""The data for a script: a failing schedule, shrunk, and its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.core.engine import ReproCalls
from conformance.core.family import Recipe
from conformance.core.schedule import Request, Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.core.weights import Shape

FieldPath = tuple[str, ...]
"""The place of a field in nested tables."""


class Kind(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a script compares.

    Attributes:
        batch: the requests in a batch with their single streams; else single streams with
            each other.
        crash: the defect is an exception.
        oracle: ``stateless`` or ``pieces``: the single stream with the pass without a cache, or
            prefill in pieces with prefill as a whole; empty for a batch.
        policy: the single stream gets the quantization arguments that a user would pass.
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
        verdict: the worst verdict.
        kind: what is compared.
        what: the text of the finding, or the exception; empty in a ``Reduction``.
        difference: the largest difference, in nats; ``noise``: how far rounding alone may go.
        mark: type and file of an exception; two crashes with equal marks are one defect.
    """

    verdict: Verdict
    kind: Kind
    what: str = ""
    difference: float = 0.0
    noise: float = 0.0
    mark: str = ""

    def like(self, other: Symptom) -> bool:
        """Whether both are of the same kind and this difference is nearly as large as the other."""
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
    """The result of a search: everything else that a script needs is read from the model.

    Attributes:
        schedule: the small schedule; its events happen at step numbers.
        symptom: how the schedule fails.
        left_out: paths of the config's fields whose values are the library's defaults.
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
        given: the processor's outputs except ids and mask; ``padded``: the outputs that are
            padded with 0, like the ids. The others are concatenated.
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
        schedule: the shrunk schedule; its events happen at step numbers.
        symptom: how the schedule fails; ``steps`` is the number of the engine's steps.
        text: the failure in words; ``place``: where it is, or a short form.
        config: of the family, as the library reads it; ``vocab`` is its number of token ids.
        recipe: of the weights; ``shapes``: all floating parameters; ``seed``: of the draw.
        packed: the model has parameters with packed numbers; ``integers``: with integers.
        model_file: a Python file that the library reads the model from; empty if there is none.
        processed: for each request with media the processor's outputs except token ids.
        joined: the batch's prompts, if they are embedded in one call.
        follows: for each request whose prompt is another's prompt and answer, the other request.
        whole: the library cannot prefill single streams of this model in pieces.
        left_out: paths of the config's fields that are the library's defaults.
        driven: the calls of an engine from another package.
        experts: the model multiplies experts in half precision, which mlx cannot do here.
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
        """The part from which ``gathered`` can restore the rest."""
        symptom = msgspec.structs.replace(self.symptom, what="")
        if not math.isfinite(symptom.difference):  # JSON has no such number
            symptom = msgspec.structs.replace(symptom, difference=0.0)
        return Reduction(self.schedule, symptom, self.left_out)

    @property
    def kind(self) -> Kind:
        """The comparison that the script makes."""
        return self.symptom.kind

    @property
    def verdict(self) -> Verdict:
        """The verdict on the schedule."""
        return self.symptom.verdict

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests, in the order of their arrival."""
        return self.schedule.requests

    @property
    def reached(self) -> str:
        """The path prefix of all parameters with an effect: without media, towers have none."""
        named = any(path.startswith("language_model.") for path in self.shapes)
        shown = any(self.processed.values())
        return "language_model." if self.library == "mlx_vlm" and named and not shown else ""

    @property
    def noise(self) -> float:
        """The largest difference that rounding can explain, in nats."""
        return self.symptom.noise

    @property
    def bound(self) -> float:
        """The geometric mean of the noise and the defect's difference, in nats."""
        noise = max(self.noise, 1e-6)
        difference = self.symptom.difference
        return float((noise * difference) ** 0.5) if math.inf > difference > noise else 100 * noise
