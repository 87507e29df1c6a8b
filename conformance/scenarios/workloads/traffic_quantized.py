"""The workload ``traffic_quantized``: traffic whose keys and values are kept in fewer bits.

Bits are an option of the engine: all rows have them, and so have the caches of the single streams.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.schedule import Schedule
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import text_request
from conformance.scenarios.choices import Seeded
from conformance.scenarios.quantized import CUT, kinds_of, quantized, row_joins, row_leaves
from conformance.scenarios.scenario import Brief, Scenario
from conformance.scenarios.workloads.mixing import Scale, draw_rows, traffic

_SCALE = Scale(first=9, second=4, groups=(1, 3), longest=31, limits=(3, 9), lasting=20)
# Of the first kind of bits: many rows that decode together; the first one's storage, of 256 keys a
# time, grows while it is prefilled, and while it decodes.
_WIDE = Scale(first=35, second=4, groups=(33, 35), longest=38, limits=(4, 8), lasting=15)
_LONG = 503


def _traffic_quantized(brief: Brief) -> list[Schedule]:
    kinds, turbo = kinds_of(brief)
    chosen = dict(list(kinds.items())[:2]) | turbo
    return [_mixed(brief, name, at, kv) for at, (name, kv) in enumerate(chosen.items())]


def _mixed(brief: Brief, name: str, number: int, kv: KvQuant) -> Schedule:
    choices = Seeded(brief.seed, 12, number)
    scale, prompts, slots = (_SCALE, 3, 6) if number else (_WIDE, 33, 36)
    piece = CUT if number else 8 * CUT
    options = EngineOptions(piece, prefill_batch_size=prompts, completion_batch_size=slots, kv=kv)
    rows = draw_rows(brief, choices, scale)
    if not number and (brief.longest is None or brief.longest > _LONG + scale.lasting):
        rows[0] = text_request(brief, rows[0].request_id, _LONG, max_tokens=scale.lasting)
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
