"""An explanation as plain data, written as JSON and shown on pages."""

from __future__ import annotations

import enum

import msgspec


class Needed(enum.StrEnum):
    """Whether the failure needs an ingredient: the outcome without it."""

    YES = "needed"
    NO = "not needed"
    UNKNOWN = "unknown"


class Ingredient(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ingredient of the failing schedule: whether it is needed, and how it was disabled.

    ``verdict`` is the verdict of the schedule without the ingredient.
    """

    name: str
    needed: Needed
    how: str
    verdict: str = ""


class Where(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run first differs from the single stream.

    Attributes:
        site: ``module:<path>:<class>``, ``cache:<entry>:<class>:<part>``, ``input:tokens`` (the
            engine fed the model other tokens), ``output:<what>`` (all passes were right),
            ``crash:<frame>``, or ``none``.
        request_id, row, position: the request, its row on the batch axis, and the token in its own
            sequence, from 0.
        step: the step of the run, from 0.
        call: the model's call, from 0.
        error: relative to the single stream's largest number there; ``None`` if not finite.
        detail: as text: the modules before and after, expected and actual values.
    """

    site: str
    request_id: str | None = None
    row: int | None = None
    position: int | None = None
    layer: int | None = None
    step: int | None = None
    call: int | None = None
    error: float | None = None
    detail: str = ""


class LayerError(msgspec.Struct, frozen=True):
    """A layer's largest relative error in the first pass that differs, and its noise.

    ``error`` is ``None`` if a number is not finite.
    """

    path: str
    error: float | None
    noise: float


class StepError(msgspec.Struct, frozen=True):
    """The largest difference of a request's logprobs at one of its steps, and its noise, in nats.

    ``difference`` is ``None`` if a number is not finite.
    """

    request_id: str
    step: int
    difference: float | None
    noise: float


SITED = 4.0
"""Score of a class whose defects break exactly the place where the failure begins."""


class Relative(msgspec.Struct, frozen=True):
    """A class of the catalogue that the failure resembles, with its most similar faults.

    ``fits`` is whether one of them is known to break the very cache field, class of cache or class
    of module at which the failure begins, not only something of its kind.
    """

    fault_class: str
    score: float
    faults: tuple[str, ...]
    sources: tuple[str, ...]
    fits: bool = False


class Explanation(msgspec.Struct, frozen=True):
    """Why a case fails.

    Attributes:
        case: its id.
        schedule: the schedule that is explained.
        fault: the key of the fault that was put in, if any.
        what: the text of the finding.
        ingredients: the schedule's ingredients, and whether the failure needs each of them.
        suffices: whether the schedule fails with only the needed ingredients; ``None`` if this was
            not tried.
        where: the first place that differs.
        entry: the first cache entry that differs.
        layers: errors of the layers, in the first pass that differs.
        steps: errors of the steps.
        opinion: the culprit according to the reference engines: model, or engine and caches.
        relatives: classes of the catalogue, the most likely first.
        seconds: wall time.
    """

    case: str
    schedule: str
    verdict: str
    what: str
    where: Where
    entry: Where | None
    ingredients: tuple[Ingredient, ...]
    suffices: bool | None
    layers: tuple[LayerError, ...]
    steps: tuple[StepError, ...]
    opinion: str
    relatives: tuple[Relative, ...]
    seconds: float
    fault: str = ""
    schema: int = 1

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the ingredients that the failure needs."""
        return tuple(i.name for i in self.ingredients if i.needed is Needed.YES)
