"""Results as Markdown: families that agree, causes of disagreements, families not compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.power.transformers_check.check_results import Reading, Result, State, totals

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
