"""What an explanation says: plain data, JSON both ways, and what pictures are drawn from."""

from __future__ import annotations

import enum

import msgspec


class Needed(enum.StrEnum):
    """What became of the failure when an ingredient was switched off."""

    YES = "needed"
    NO = "not needed"
    UNKNOWN = "unknown"


class Ingredient(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ingredient of the failing schedule: whether it fails without it, and how it was undone.

    ``verdict`` is that of the schedule without the ingredient.
    """

    name: str
    needed: Needed
    how: str
    verdict: str = ""


class Where(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run first leaves the single stream.

    Attributes:
        site: ``module:<path>:<class>``, ``cache:<entry>:<class>:<part>``, ``input:tokens`` (the
            engine fed the model other tokens), ``output:<what>`` (the model was right to its end),
            ``crash:<frame>``, or ``none``.
        request_id, row, position: whose, where on the batch axis, and at which token of its own
            sequence, from 0.
        step: of the run; ``call`` the model's call, both from 0.
        error: relative to the single stream's largest number there; ``None`` if not finite.
        detail: in words: between which modules, expected and got.
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
    """A layer's output in the pass that differs first: the largest relative error, and its noise.

    ``error`` is ``None`` where a number is not finite.
    """

    path: str
    error: float | None
    noise: float


class StepError(msgspec.Struct, frozen=True):
    """The largest difference of a request's logprobs at one of its steps, and its noise, in nats.

    ``difference`` is ``None`` where a number is not finite.
    """

    request_id: str
    step: int
    difference: float | None
    noise: float


class Relative(msgspec.Struct, frozen=True):
    """A class of defects of the catalogue that looks like this, with the defects it is known by."""

    fault_class: str
    score: float
    faults: tuple[str, ...]
    sources: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """Why a case fails.

    Attributes:
        case: its id; ``schedule`` the one of its schedules that was taken apart.
        fault: the key of the fault that was put in, if one was.
        what: the first thing that a check said.
        ingredients: each that the schedule has, and whether the failure needs it.
        suffices: whether the schedule fails with the needed ingredients alone; ``None`` if that
            was not asked.
        where: the first place that differs.
        entry: the first cache entry that differs.
        layers: error along the layers, in the pass that differs first.
        steps: error along the steps.
        opinion: model, or engine and caches, by the engines that are right by construction.
        relatives: classes of the catalogue, the likeliest first.
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
        """The names of the ingredients without which it does not fail."""
        return tuple(i.name for i in self.ingredients if i.needed is Needed.YES)


def encode(explanation: Explanation) -> str:
    """The explanation as one line of JSON, without the newline."""
    return msgspec.json.encode(explanation).decode()
