"""Defects of samplers that requests bring."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend

# Filters check their arguments while they are traced.
_FILTERS = ("apply_top_k", "apply_min_p", "apply_xtc")


@mend("samplers-refused-while-traced")
def refusals_leave_random_numbers_alone(hits: Hits) -> Patch:
    """A filter that refuses its argument leaves the state of random numbers as it was."""

    def apply(right: Right, *args: Any, **options: Any) -> Any:
        state: Any = mx.random.state
        key = state[0]
        try:
            return right(*args, **options)
        except ValueError:
            hits.hit()
            high, low = key.tolist()
            mx.random.seed(high << 32 | low)
            raise

    return together(*(wrap(sample_utils, name, apply) for name in _FILTERS))
