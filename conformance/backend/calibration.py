"""Searches a weights recipe that makes a family sensitive, and writes it to the family's file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import FamilyError
from conformance.core.family import SECTION, Family
from conformance.core.sensitivity import LOGIT_STD, Sensitivity

_PERFECT = 2.999
_EMBEDDINGS = (1.0, 0.5, 2.0, 0.25)
_SEEDS = (0, 1, 2, 3)


Measure = Callable[[Family], Sensitivity]


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration: the family as it was, and the best candidate."""

    family: Family
    before: Sensitivity
    proposal: Family
    after: Sensitivity

    @property
    def changed(self) -> bool:
        """Whether the proposal differs from the family's recipe."""
        return self.proposal.facts != self.family.facts


def calibrate(family: Family, measure: Measure) -> Calibration:
    """Measure a family with ``measure`` and, if it falls short, search for better settings.

    Only ``embedding_std``, ``logit_scale`` and the seed are changed; rules are written by people.

    Raises:
        Unsupported: the installed library or this machine can't run the family.
        ModelError: the family could not be built, loaded or run.
    """
    before = measure(family)
    best, best_measured = family, before
    if before.score < _PERFECT:
        for candidate in _candidates(family):
            tuned, measured = _with_logit_std(candidate, measure)
            if measured.score > best_measured.score:
                best, best_measured = tuned, measured
            if best_measured.score >= _PERFECT:
                break
    return Calibration(family=family, before=before, proposal=best, after=best_measured)


def improve(family: Family, measure: Measure) -> bool:
    """Calibrate a family and write a better recipe into its file. Returns whether one was found.

    Raises:
        Unsupported: the installed library or this machine can't run the family.
        ModelError: the family could not be built, loaded or run.
        FamilyError: the family's file could not be written.
    """
    found = calibrate(family, measure)
    if found.changed:
        write_recipe(found.proposal)
    return found.changed


def _candidates(family: Family) -> Iterator[Family]:
    base = family.facts.weights.embedding_std
    for seed in _SEEDS:
        for factor in _EMBEDDINGS:
            yield _changed(family, embedding_std=_rounded(base * factor), seed=seed)


def _with_logit_std(family: Family, measure: Measure) -> tuple[Family, Sensitivity]:
    """The family with its logits' spread at the aim; one step is nearly always enough."""
    measured = measure(family)
    for _ in range(2):
        if 0.6 * LOGIT_STD <= measured.logit_std <= 1.6 * LOGIT_STD or not measured.logit_std:
            break
        scale = family.facts.weights.logit_scale * LOGIT_STD / measured.logit_std
        family = _changed(family, logit_scale=_rounded(scale))
        measured = measure(family)
    return family, measured


def _changed(family: Family, *, seed: int | None = None, **settings: float) -> Family:
    facts = family.facts
    recipe = msgspec.structs.replace(facts.weights, **settings)
    seed = facts.seed if seed is None else seed
    return msgspec.structs.replace(
        family, facts=msgspec.structs.replace(facts, weights=recipe, seed=seed)
    )


def _rounded(value: float) -> float:
    """Two significant digits, for a readable recipe."""
    return float(f"{value:.2g}")


def write_recipe(family: Family) -> None:
    """Put a family's recipe and seed into its file; everything else in the file stays as it is.

    The file is written whole and renamed into place, so no reader ever sees half of it.

    Raises:
        FamilyError: the file can't be read or written.
    """
    path = Path(family.path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        section = config.setdefault(SECTION, {})
        _put(section, "weights", msgspec.to_builtins(family.facts.weights))
        _put(section, "seed", family.facts.seed)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.stem}-", delete=False, encoding="utf-8"
        ) as file:
            file.write(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        Path(file.name).chmod(path.stat().st_mode)
        os.replace(file.name, path)  # noqa: PTH105 - the one call whose atomicity is documented
    except (OSError, json.JSONDecodeError) as error:
        raise FamilyError(f"{path}: cannot write the recipe: {error}") from error


def _put(section: dict[str, Any], key: str, value: Any) -> None:
    """Set a key; default values are not written."""
    if value:
        section[key] = value
    else:
        section.pop(key, None)
