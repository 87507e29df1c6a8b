"""The results of a verification as data: one JSON line for each family."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from conformance.core.errors import ResultError
from conformance.core.user_files import typed_json


class State(enum.StrEnum):
    """The outcome of a comparison."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNLOADABLE = "cannot be loaded"
    UNBUILDABLE = "cannot be built in transformers"
    MISSING = "optional package missing"
    ABSENT = "not in transformers"
    INSENSITIVE = "agrees, but would whatever the weights are"
    CRASHED = "the process crashed"


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One comparison of logprobs over every place of a prompt and its greedy answer.

    Attributes:
        ratio: the largest difference over its noise.
        difference: the largest difference, in nats.
        noise: the largest noise, in nats.
        place: the first place that counts as wrong, ``None`` if none does.
    """

    ratio: float
    difference: float
    noise: float
    place: int | None = None


class Explained(msgspec.Struct, frozen=True):
    """A known cause of a difference."""

    wrong: str
    at: str
    what: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one family.

    Attributes:
        words: the reason, if any: the error message of the side that failed.
        reading: the library's pass over all tokens, compared with the torch model's.
        stream: the library's single stream, with a cache, compared with growing prefixes in torch.
        generated: transformers' ``generate`` with its cache, compared with these prefixes.
        proof: the reading with the changes of all causes.
        tokens: greedy tokens of the torch model, and of the library.
        effective: how many of ``parameters`` change the logprobs if 1 % of noise is added to them.
        ineffective: the parameters that do not.
        saved: the reading with the ``config.json`` that transformers itself writes.
    """

    library: str
    family: str
    model_type: str
    state: State
    words: str = ""
    prompt: int = 0
    reading: Reading | None = None
    stream: Reading | None = None
    generated: Reading | None = None
    generated_words: str = ""
    tokens: tuple[int, ...] = ()
    library_tokens: tuple[int, ...] = ()
    effective: int = msgspec.field(default=0, name="heard")  # the name in published results
    parameters: int = 0
    ineffective: tuple[str, ...] = msgspec.field(default=(), name="unheard")
    saved: Reading | None = None
    saved_words: str = ""
    adjusted: tuple[str, ...] = ()
    both: dict[str, object] = {}
    causes: tuple[Explained, ...] = ()
    proof: Reading | None = None
    versions: dict[str, str] = {}
    seconds: float = 0.0

    @property
    def verified(self) -> bool:
        """Whether an independent implementation agrees, apart from its own defects."""
        return self.state is State.AGREES or (self.explained and self.wrong == {"transformers"})

    @property
    def wrong(self) -> set[str]:
        """Which of the two sides the causes are in."""
        return {cause.wrong for cause in self.causes}

    @property
    def explained(self) -> bool:
        """Whether the two agree with the changes of all causes."""
        return bool(self.causes) and self.proof is not None and self.proof.place is None

    @property
    def expected(self) -> bool:
        """Whether the result is expected: it agrees without known causes, or they explain it."""
        if self.state is State.AGREES:
            return not self.causes
        if self.state in (State.ABSENT, State.MISSING):
            return True
        return self.explained


def encode(result: Result) -> str:
    """One line of JSON."""
    return msgspec.json.encode(result).decode()


def decode(line: str, *, where: str) -> Result:
    """The result of a line.

    Raises:
        ResultError: the line is not a result.
    """
    return typed_json(line, Result, where, ResultError)


def totals(results: Sequence[Result]) -> str:
    """The number of results in each state, and of verified ones."""
    counts = {state: sum(r.state is state for r in results) for state in State}
    parts = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    return f"{parts}; {sum(result.verified for result in results)} verified"
