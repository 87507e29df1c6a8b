"""The workload ``traffic_quantized``: traffic whose keys and values are kept in fewer bits.

Bits are an option of the engine: all rows have them, and so have the caches of the single streams.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.schedule import Schedule
from conformance.scenarios import witnesses as seen
from conformance.scenarios.choices import Seeded
from conformance.scenarios.quantized import CUT, kinds_of, quantized, row_joins, row_leaves
from conformance.scenarios.scenario import Brief, Scenario
from conformance.scenarios.workloads.mixing import Scale, draw_rows, traffic

_SCALE = Scale(first=9, second=4, groups=(1, 3), longest=31, limits=(3, 9), lasting=20)
# Of the first kind of bits: many rows that decode together.
_WIDE = Scale(first=13, second=4, groups=(9, 11), longest=31, limits=(5, 11), lasting=24)


def _traffic_quantized(brief: Brief) -> list[Schedule]:
    kinds, turbo = kinds_of(brief)
    chosen = dict(list(kinds.items())[:2]) | turbo
    return [_mixed(brief, name, at, kv) for at, (name, kv) in enumerate(chosen.items())]


def _mixed(brief: Brief, name: str, number: int, kv: KvQuant) -> Schedule:
    choices = Seeded(brief.seed, 12, number)
    scale, prompts, slots = (_SCALE, 3, 6) if number else (_WIDE, 9, 18)
    options = EngineOptions(CUT, prefill_batch_size=prompts, completion_batch_size=slots, kv=kv)
    rows = draw_rows(brief, choices, scale)
    return traffic(brief, choices, scale, rows, name=name, options=options)


TRAFFIC_QUANTIZED = Scenario(
    "traffic_quantized",
    217,
    "a busy server that keeps keys and values in fewer bits",
    frozenset(
        {
            Capability.QUANTIZED,
            Capability.LATE_JOIN,
            Capability.CHUNKED,
            Capability.SLOTS,
            Capability.CANCEL,
            Capability.STAGES,
        }
    ),
    _traffic_quantized,
    (
        quantized(),
        row_joins(),
        row_leaves(),
        seen.rows_together(5).shown_in("uniform_8_*"),
    ),
)
