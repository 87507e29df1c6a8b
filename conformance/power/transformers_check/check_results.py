"""The results of a verification: as JSON lines, as Markdown, and in the provenance of goldens."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from conformance.core.errors import ResultError
from conformance.core.user_files import typed_json
from conformance.power.transformers_check.known_differences import STEPS
from conformance.tools.golden.format import (
    Verification,
    golden_path,
    load_golden,
    put_verified,
    to_text,
    write_whole,
)


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


def write_verified(root: Path, results: Sequence[Result]) -> str:
    """Write each family's verification into its golden, or remove it if it no longer holds.

    Raises:
        GoldenError: a golden is damaged, or cannot be written.
    """
    done, lacking, removed = 0, [], []
    for result in results:
        path = golden_path(root, result.library, result.family)
        if not path.exists():
            lacking += [result.family] if result.verified else []
        elif result.verified:
            put_verified(path, verification(result))
            done += 1
        elif remove_verified(path):
            removed.append(result.family)
    without = f"; no golden of {', '.join(lacking)}" if lacking else ""
    no_more = f"; removed from those of {', '.join(removed)}" if removed else ""
    return f"written to {done} goldens{without}{no_more}"


def remove_verified(path: Path) -> bool:
    """Remove the verification from a golden; returns whether there was one.

    Raises:
        GoldenError: the golden is damaged, or cannot be written.
    """
    golden = load_golden(path)
    if golden.provenance.verified is None:
        return False
    provenance = msgspec.structs.replace(golden.provenance, verified=None)
    write_whole(path, to_text(msgspec.structs.replace(golden, provenance=provenance)))
    return True


def verification(result: Result) -> Verification:
    """The verification for a golden: the version, and the deviations from its family.

    Deviations are fields that both sides got, and worked-around defects of the other side.
    """
    agreed = result.stream if result.state is State.AGREES else result.proof
    assert agreed is not None
    version = result.versions["transformers and torch"].partition(",")[0]
    other = [f"{name}={value}" for name, value in sorted(result.both.items())]
    other += [f"but for {cause.at}" for cause in result.causes]
    return Verification(
        against=f"{version} ({', '.join(other)})" if other else version,
        difference=agreed.difference,
        tokens=STEPS,
    )


BEGIN = "<!-- begin: written by `conformance golden verify --markdown` -->"
END = "<!-- end -->"
_NOT_COMPARED = (State.ABSENT, State.MISSING, State.UNBUILDABLE, State.CRASHED)


def markdown(results: Sequence[Result]) -> str:
    """The tables of all results, between the two marks."""
    compared = [result for result in results if result.state not in _NOT_COMPARED]
    others = [result for result in results if result.state in _NOT_COMPARED]
    parts = [BEGIN, f"{len(results)} families: {totals(results)}.", _spread(compared)]
    agree = [result for result in compared if result.state is State.AGREES]
    parts += ["## Agree", _agreeing(agree)]
    parts += ["## Disagree", _disagreeing([r for r in compared if r not in agree])]
    parts += ["## Causes", _causes(compared)]
    parts += ["## Adjusted", _adjusted(compared)]
    parts += ["## Not compared", _not_compared(others), END]
    return "\n\n".join(part for part in parts if part) + "\n"


def placed(text: str, table: str) -> str:
    """``text`` with the part between its marks replaced by ``table``, or only the table."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    return f"{head}{table.rstrip()}{tail}" if begin and end else table


def _spread(results: Sequence[Result]) -> str:
    """The ranges of the ratios of families that agree, and of the others."""
    agree = [result for result in results if result.state is State.AGREES]
    good = sorted(r.reading.ratio for r in agree if r.reading)
    proofs = sorted(r.proof.ratio for r in results if r.proof)
    bad = sorted(r.reading.ratio for r in results if r not in agree and r.reading)
    parts = []
    if good:
        middle = good[len(good) // 2]
        parts.append(
            f"of those that agree {good[0]:.3g} to {good[-1]:.3g}, the median {middle:.3g}"
        )
    if proofs:
        parts.append(f"with all causes changed {proofs[0]:.3g} to {proofs[-1]:.3g}")
    if bad:
        parts.append(f"of those that disagree {bad[0]:.3g} to {bad[-1]:.3g}")
    return f"Largest difference over its noise: {'; '.join(parts)}." if parts else ""


def _rows(head: str, rows: Iterable[Sequence[str]]) -> str:
    names = head.split("|")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _agreeing(results: Sequence[Result]) -> str:
    head = "family|model type|ratio|nats|stream|generate|parameters with effect|config as saved"
    return _rows(
        head,
        (
            [
                result.family,
                result.model_type,
                _ratio(result.reading),
                _nats(result.reading),
                _ratio(result.stream),
                _ratio(result.generated) or result.generated_words,
                f"{result.effective} of {result.parameters}",
                _saved(result),
            ]
            for result in results
        ),
    )


def _disagreeing(results: Sequence[Result]) -> str:
    head = "family|result|wrong|ratio|nats|tokens of transformers|those of the library|changed"
    return _rows(
        head,
        (
            [
                result.family,
                str(result.state),
                " and ".join(sorted(result.wrong)),
                _ratio(result.reading),
                _nats(result.reading),
                " ".join(map(str, result.tokens)),
                " ".join(map(str, result.library_tokens)),
                _ratio(result.proof) if result.proof else "not explained",
            ]
            for result in results
        ),
    )


def _causes(results: Sequence[Result]) -> str:
    found = sorted(
        (cause.wrong, cause.at, cause.what, r.family) for r in results for cause in r.causes
    )
    return _rows(
        "wrong|where|what|family",
        ([wrong, f"`{at}`", what, family] for wrong, at, what, family in found),
    )


def _adjusted(results: Sequence[Result]) -> str:
    lines = [f"- {result.family}: {why}" for result in results for why in result.adjusted]
    return "\n".join(lines)


def _not_compared(results: Sequence[Result]) -> str:
    return _rows("family|result|why", ([r.family, str(r.state), r.words] for r in results))


def _ratio(reading: Reading | None) -> str:
    return f"{reading.ratio:.3g}" if reading else ""


def _nats(reading: Reading | None) -> str:
    return f"{reading.difference:.1e}" if reading else ""


def _saved(result: Result) -> str:
    """The library's result with the config that transformers writes."""
    if result.saved is None:
        return "not loaded"
    return "agrees" if result.saved.place is None else f"{result.saved.difference:.1e} nats off"
