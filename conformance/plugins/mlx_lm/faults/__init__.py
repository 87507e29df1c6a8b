"""Historic defects, put into mlx-lm's batch generator and its caches at run time."""

from conformance.core.faults.base import Fault
from conformance.plugins.mlx_lm.faults import (
    attention,
    cache_verbs,
    cancellation,
    chunks,
    cost,
    invalid,
    kept_caches,
    lists,
    masks,
    padding_nan,
    positions,
    prefix,
    recurrent,
    rotating,
    samplers,
    stop,
    threads,
)

_MODULES = (
    positions,
    masks,
    attention,
    padding_nan,
    recurrent,
    cache_verbs,
    rotating,
    prefix,
    kept_caches,
    chunks,
    lists,
    stop,
    samplers,
    cancellation,
    invalid,
    threads,
    cost,
)
FAULTS: tuple[Fault, ...] = tuple(fault for module in _MODULES for fault in module.FAULTS)
