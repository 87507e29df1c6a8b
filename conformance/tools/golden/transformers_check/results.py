"""What a verification gives, as data: one line for each family, and the table of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from conformance.core.errors import ResultError


class State(enum.StrEnum):
    """How the two stand to each other."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNLOADABLE = "cannot be loaded"
    UNBUILDABLE = "cannot be built in transformers"
    MISSING = "optional package missing"
    ABSENT = "not in transformers"
    DEAF = "agrees, but would whatever the weights are"
    DIED = "the process died"


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One comparison of logprobs over every place of a prompt and its greedy answer.

    Attributes:
        ratio: the largest difference over its noise.
        difference: the largest difference, in nats.
        noise: the largest noise, in nats.
        place: the first that counts as wrong, ``None`` if none does.
    """

    ratio: float
    difference: float
    noise: float
    place: int | None = None


class Explained(msgspec.Struct, frozen=True):
    """A known cause of what was found."""

    wrong: str
    at: str
    what: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one family.

    Attributes:
        words: why, where there is more to say; in the words of whoever failed.
        reading: the library's pass over all tokens against the torch model's.
        stream: the library's single stream, with its cache, against growing prefixes in torch.
        generated: ``generate`` of transformers with its cache against the same.
        proof: the reading with the change of all causes made.
        tokens: greedy tokens of the torch model, and those of the library.
        heard: of ``parameters``, how many move the logprobs if 1 % of noise is put on them.
        unheard: the others.
        saved: what comes of the ``config.json`` that transformers itself writes.
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
    heard: int = 0
    parameters: int = 0
    unheard: tuple[str, ...] = ()
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
        """Whether an independent implementation gave the same, or would but for its own defects."""
        return self.state is State.AGREES or (self.explained and self.wrong == {"transformers"})

    @property
    def wrong(self) -> set[str]:
        """Which of the two its causes are in."""
        return {cause.wrong for cause in self.causes}

    @property
    def explained(self) -> bool:
        """Whether the two agree with the change of all causes made."""
        return bool(self.causes) and self.proof is not None and self.proof.place is None

    @property
    def expected(self) -> bool:
        """Whether it is as known: it agrees and no cause is on file, or its causes explain it."""
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
        ResultError: it is none.
    """
    try:
        return msgspec.json.decode(line, type=Result)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ResultError(f"{where}: {error}") from error


def totals(results: Sequence[Result]) -> str:
    """How many of each state, and how many are verified by it."""
    counts = {state: sum(r.state is state for r in results) for state in State}
    told = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    return f"{told}; {sum(result.verified for result in results)} verified"
