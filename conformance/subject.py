"""A loaded model with all that is made once for it: meter, oracles, noise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from conformance.family import Family
from conformance.library import Library
from conformance.phases import Phases
from conformance.reference.oracle import STATELESS_STEPS, Oracle
from conformance.trace import ForwardCall

# What is entered for a run of a schedule, by its name.
Around = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class Subject:
    """A family's model in one dtype, ready for every engine and scenario.

    ``around`` is entered for each run of an engine, with the name of the schedule it plays, and
    left after it: a fault is in place there, and nowhere else, so that the oracle stays right.
    """

    family: Family
    library: Library
    model: Any
    meter: list[ForwardCall]
    oracle: Oracle
    phases: Phases
    around: Around = contextlib.nullcontext

    @classmethod
    def load(
        cls,
        library: Library,
        family: Family,
        *,
        dtype: str,
        seed: int,
        phases: Phases,
        evaluate: bool = False,
    ) -> Subject:
        """Load the family's model.

        Raises:
            ModelError: the library cannot build or load it.
        """
        with phases("load"):
            model = library.load(family, dtype=dtype, seed=seed)
        meter = library.meter(model, evaluate=evaluate)
        steps = 1 if family.facts.bidirectional_prompt else STATELESS_STEPS
        oracle = Oracle(library, model, dtype, steps)
        return cls(family, library, model, meter, oracle, phases)
