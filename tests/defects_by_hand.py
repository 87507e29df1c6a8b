"""Made-up known defects, and what they are counted against."""

from contextlib import nullcontext

from conformance.checks.expectations import Defect
from conformance.checks.expectations.defects import Ground, known_defects
from conformance.core.mends import Mend
from conformance.core.verdict import Verdict

FAMILIES = ("gemma", "llama", "mamba")
GROUND = Ground(
    cases={
        "mlx_lm": dict.fromkeys(FAMILIES, ("ragged", "staggered", "invalid")),
        "mlx_lm_batch_generate": dict.fromkeys(FAMILIES, ("ragged",)),
        "mlx_lm_server": dict.fromkeys(FAMILIES, ("served_alone", "served_malformed")),
    },
    generators=frozenset({"mlx_lm", "mlx_lm_server"}),
    summaries={"ragged": "prompts of unequal length"},
    mends=(Mend("right", ("lost-state",), "The state is the row's own.", lambda _: nullcontext()),),
)


def entry(name="lost-state", line=1, **changes):
    """An entry about one family that diverges in one scenario."""
    fields = {
        "id": name,
        "engines": ("mlx_lm",),
        "families": ("mamba",),
        "package": "mlx-lm",
        "versions": ">=0.32.0,<=0.32.2",
        "where": f"mlx_lm.models.mamba:Mamba.__call__+{line}",
        "why": "The state is taken at the padded end. The row ends before it.",
        "verdicts": {"ragged": Verdict.DIVERGED},
    }
    return Defect(**(fields | changes))


def known(*entries):
    """The defects that the entries are about."""
    return known_defects(entries, GROUND)
