"""The toy plugin with a library that decodes: its cases are right as long as its code is."""

import contextlib

from toy import batching
from toy_plugin import (
    ToyEngine,
    conformance_engines,
    conformance_families,
    conformance_libraries,
    conformance_scenarios,
    exact,
    result,
)

from conformance.core.verdict import Finding, Verdict
from conformance.power.mutants import mutant_trials
from conformance.run.session import Session

__all__ = [
    "ToyEngine",
    "conformance_engines",
    "conformance_families",
    "conformance_libraries",
    "conformance_scenarios",
]


def run(session, case, *, around=contextlib.nullcontext, until=None, only=()):
    with around("long_and_short"):
        try:
            batching.mark()
            found = batching.longest([1, 3, 2]) + len(batching.MARKS)
            batching.finish()
            batching.wait()
        except TypeError as error:
            return wrong(case, Verdict.CRASH, repr(error))
    return exact(case) if found == 3 else wrong(case, Verdict.DIVERGED, str(found))


def wrong(case, verdict, got):
    finding = Finding(verdict, "tokens", "it is not 3", "long_and_short", got=got)
    return result(case, verdict, finding)


Session.run = run
# A hang is not waited for as long as with models, which are slower.
mutant_trials._SECONDS = 2.0
