"""Many requests to a server that draw at random: by the single stream's probabilities.

The check ``draws`` judges them: a right server fails with a probability below 3 in 10 million.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Asked, Schedule, Stage
from conformance.core.token_choice import RANDOM, Sampler
from conformance.core.trace import Trace
from conformance.scenarios.build import SHORT, produced, text_request, together
from conformance.scenarios.scenario import Brief, Scenario, Witness

_ROWS = 64
_TOKENS = 12
# No more than a server's queue of new connections holds.
_AT_ONCE = 4


# From one request to the next. Their draws are more or less even than those at temperature 1.
_UNLIKE = (1.0, 0.3, 2.5, 0.6)


def _draws(brief: Brief) -> list[Schedule]:
    return [_joining(brief, "equal", (1.0,)), _joining(brief, "unlike", _UNLIKE)]


def _joining(brief: Brief, name: str, temperatures: Sequence[float]) -> Schedule:
    """Requests without a seed, some of which come whenever others have begun."""
    rows = [
        text_request(
            brief,
            f"r{n}",
            SHORT,
            max_tokens=_TOKENS,
            sampler=Sampler(RANDOM, {"temp": temperatures[n % len(temperatures)]}),
            asked=Asked(streamed=n % _AT_ONCE != _AT_ONCE - 1),
        )
        for n in range(_ROWS)
    ]
    arrivals = [together(*rows[:_AT_ONCE])]
    arrivals += [
        together(*rows[at : at + _AT_ONCE], when=produced(f"r{at - _AT_ONCE}", 1))
        for at in range(_AT_ONCE, _ROWS, _AT_ONCE)
    ]
    options = EngineOptions(completion_batch_size=_ROWS)
    return Schedule(name, tuple(arrivals), options=options)


def _at_once(trace: Trace) -> bool:
    """Whether several answers were on their way at once."""
    return any(len(step.in_stage(Stage.DECODE)) > 1 for step in trace.steps)


SERVED_DRAWS = Scenario(
    "served_draws",
    366,
    "64 requests without a seed, alike or not: each draws by the probabilities of its own history",
    frozenset({Capability.SERVED, Capability.SAMPLERS, Capability.PROCESSORS}),
    _draws,
    (Witness("several answers at once", _at_once, beside=True),),
)
