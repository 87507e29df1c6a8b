"""Proves that batched decoding on MLX gives what single-stream decoding gives.

What plugins and tests of other projects need can be imported from here. ``ARCHITECTURE.md`` shows
the folders in import order and defines the terms.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # more imports would be more time in which Ctrl-C is a traceback
if TYPE_CHECKING:
    from typing import Any

    from conformance.app.assertion import KnownDefectsWarning, assert_batching_conforms
    from conformance.core.engine import Capability, Engine, PrefixReuse, ReproCalls, Submission
    from conformance.core.engine_options import EngineOptions
    from conformance.core.family import Facts, Family, load_family
    from conformance.core.faults import Fault
    from conformance.core.library import Library
    from conformance.core.mends import Mend
    from conformance.core.origin import Origin
    from conformance.core.schedule import Request, Schedule, Stage
    from conformance.core.trace import FinishReason, StepOutput, TokenEvent
    from conformance.core.verdict import Verdict
    from conformance.run.hookspecs import hookimpl
    from conformance.scenarios import Scenario
    from conformance.scenarios.scenario import Witness

__all__ = [
    "Capability",
    "Engine",
    "EngineOptions",
    "Facts",
    "Family",
    "Fault",
    "FinishReason",
    "KnownDefectsWarning",
    "Library",
    "Mend",
    "Origin",
    "PrefixReuse",
    "ReproCalls",
    "Request",
    "Scenario",
    "Schedule",
    "Stage",
    "StepOutput",
    "Submission",
    "TokenEvent",
    "Verdict",
    "Witness",
    "__version__",
    "assert_batching_conforms",
    "hookimpl",
    "load_family",
]

__version__ = "0.1.0"

# Imported at first use: `conformance --help` needs none of them, and the assertion needs mlx.
_MODULE_OF = {
    name: module
    for module, names in {
        "app.assertion": "KnownDefectsWarning assert_batching_conforms",
        "core.engine": "Capability Engine PrefixReuse ReproCalls Submission",
        "core.family": "Facts Family load_family",
        "core.faults": "Fault",
        "core.library": "Library",
        "core.engine_options": "EngineOptions",
        "core.mends": "Mend",
        "core.origin": "Origin",
        "core.schedule": "Request Schedule Stage",
        "core.trace": "FinishReason StepOutput TokenEvent",
        "core.verdict": "Verdict",
        "run.hookspecs": "hookimpl",
        "scenarios": "Scenario",
        "scenarios.scenario": "Witness",
    }.items()
    for name in names.split()
}


def __dir__() -> list[str]:
    """All public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """A public name, from its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
