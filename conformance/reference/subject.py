"""A loaded model with everything that is made once for it: meter, oracles, noise."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.origin import Origin, Other
from conformance.core.phases import ForwardCall, Phases
from conformance.core.remote_code import sealed
from conformance.core.schedule import Request
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle import STATELESS_STEPS, Oracle
from conformance.reference.oracle_file import OracleFile
from conformance.reference.store import OracleCache, oracle_cache

# Makes the context for a run of the schedule with this name.
Around = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class Subject:
    """A family's model in one dtype, ready for every engine and scenario.

    ``around`` is a context entered for each run of an engine, with the schedule's name: a fault is
    active there and nowhere else, so that the oracle stays right. ``file`` stores the oracle's
    results for later runs, for a tiny family. ``origin`` says where the model is from, for engines
    that load it in their own process. ``others`` loads models that decode beside it, with their
    families.
    """

    family: Family
    library: Library
    model: Any
    meter: list[ForwardCall]
    oracle: Oracle
    phases: Phases
    around: Around = contextlib.nullcontext
    file: OracleFile | None = None
    origin: Origin | None = None
    others: Callable[[], Sequence[tuple[Family, Any]]] = tuple

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
        store: FamilyStore | None = None,
    ) -> Subject:
        """Load the family's model.

        Args:
            store: keeps the oracle's results of a tiny family between runs.

        Raises:
            ModelError: the library cannot build or load it.
        """
        with phases("load"), _sealed(family):
            model = library.load(family, dtype=dtype, seed=seed)
        meter = library.meter(model, evaluate=evaluate)
        steps = 1 if family.facts.bidirectional_prompt else STATELESS_STEPS
        file = store.open(library, family, dtype, seed) if store is not None else None
        cache = file.cache if file is not None else _cache(library, family, dtype)
        oracle = Oracle(library, model, dtype, steps, cache=cache, meter=meter)
        write = functools.partial(library.write, family, dtype=dtype, seed=seed)

        def other(number: int) -> Other:
            made = cls.load(library, family, dtype=dtype, seed=number, phases=phases)
            assert made.origin is not None
            assert made.origin.alone is not None
            return Other(made.origin.write, made.origin.alone)

        def alone(request: Request, options: EngineOptions) -> tuple[int, ...]:
            return oracle.solo(request, options, None).tokens

        def logprobs(request: Request, options: EngineOptions) -> Any:
            return oracle.solo(request, options, None).logprobs

        others = functools.cache(other)
        origin = Origin(model, family, dtype, seed, write, others, meter, alone, logprobs)
        return cls(family, library, model, meter, oracle, phases, file=file, origin=origin)

    def model_for(self, engine: type[Engine]) -> Any:
        """What an engine is made with: the loaded model, or its origin."""
        elsewhere = engine.own_processes or Capability.SERVED in engine.capabilities
        return self.origin if elsewhere else self.model


def _sealed(family: Family) -> AbstractContextManager[None]:
    """Runs no code from a checkpoint or a config unless the user allows it."""
    real = family.checkpoint
    return sealed(Path(real.folder), trusted=real.trusted) if real else sealed(None, trusted=False)


def _cache(library: Library, family: Family, dtype: str) -> OracleCache:
    """Where the oracle's results are stored: on disk for a checkpoint with a folder."""
    checkpoint = family.checkpoint
    if checkpoint is None or not checkpoint.cache:
        return OracleCache({}, {})
    made_by = {**library.versions(), "device": library.device(), "dtype": dtype}
    return oracle_cache(Path(checkpoint.cache), checkpoint.digest, made_by)
