"""The coverage of schedules: pairs of features, and witnesses of the ladder's scenarios."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from conformance.core.engine import Engine
from conformance.core.schedule import Schedule, Stage
from conformance.core.trace import Trace
from conformance.scenarios import Brief, Witness, media, quantized
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios import speculative as drafts
from conformance.scenarios import witnesses as seen
from conformance.scenarios.features import Feature, able, features_of, together


def witnesses_of(features: Sequence[Feature]) -> tuple[Witness, ...]:
    """The witnesses that schedules with these features can have."""
    found = [
        seen.rows_together(2),
        seen.rows_together(3),
        seen.one_row_calls(),
        seen.prefill_together(2),
        seen.padding(),
        seen.leaves_early(),
    ]
    if Feature.ARRIVALS in features:
        found.append(seen.late_join())
    if Feature.PIECES in features:
        found.append(seen.chunks(3))
    if Feature.SLOTS in features:
        found.append(seen.waits_for_slot())
    if Feature.REMOVALS in features:
        stages = (Stage.QUEUED, Stage.PREFILL, Stage.DECODE)
        found += [seen.removed_from(stage) for stage in stages] + [seen.follow_up()]
    if Feature.CACHING in features:
        found += [reuse.hit(), reuse.hit_of_part(), reuse.beside_cold(), reuse.late_hit()]
    if Feature.MEDIA in features:
        found += [media.beside_text(), media.text_joins(), media.joins_text()]
    if Feature.QUANTIZED in features:
        found += [quantized.quantized(), quantized.row_leaves(), quantized.row_joins()]
    if Feature.DRAFTS in features:
        found += [drafts.accepted_all(), drafts.accepted_some(), drafts.rejected()]
    return tuple(found)


class Coverage:
    """Counts what the schedules that were run covered.

    Attributes:
        able: the features that the engine and the family can have.
        pairs: for ``a+b``, in the order of ``Feature``, the number of schedules with both.
        seen: names of the witnesses of any schedule.
    """

    def __init__(self, engine: type[Engine], brief: Brief, without: Sequence[Feature] = ()) -> None:
        self.able = tuple(feature for feature in able(brief) if feature not in without)
        self.seen: set[str] = set()
        self._window = brief.window
        self.pairs: Counter[str] = Counter(
            {
                f"{a}+{b}": 0
                for a, b in itertools.combinations(self.able, 2)
                if len(together((a, b), uncut=brief.uncut)) > 1
            }
        )
        self._open = [w for w in witnesses_of(self.able) if w.needs <= engine.capabilities]
        self.possible = tuple(dict.fromkeys(witness.name for witness in self._open))

    def add(self, schedule: Schedule, traces: Sequence[Trace]) -> None:
        """Count a schedule that was run."""
        used = features_of(schedule, self._window)
        present = [feature for feature in Feature if feature in used]
        self.pairs.update(f"{a}+{b}" for a, b in itertools.combinations(present, 2))
        for witness in tuple(self._open):
            if any(witness.seen(trace) for trace in traces):
                self.seen.add(witness.name)
                self._open.remove(witness)
