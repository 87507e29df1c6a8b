"""Families of the mlx_vlm plugin, loaded, and what a scenario finds on them."""

from pathlib import Path

import conformance
from conformance.core.family import load_family
from conformance.core.phases import Phases
from conformance.plugins.mlx_vlm.engine import MlxVlmEngine
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched

FAMILIES = Path(conformance.__file__).parent / "plugins" / "mlx_vlm" / "families"


def load_subject(name):
    family = load_family(FAMILIES / f"{name}.json")
    return Subject.load(MlxVlm(), family, dtype="float32", seed=0, phases=Phases())


def findings(subject, scenario, *schedules):
    """All findings of the scenario, or of its schedules of those names, without witnesses."""
    made = scenario.make(brief_for(subject, MlxVlmEngine, 0))
    chosen = [s for s in made if not schedules or s.name in schedules]
    assert len(chosen) == (len(schedules) or len(made))
    found = judge_batched(subject, MlxVlmEngine, scenario, chosen).findings
    return [f for f in found if not schedules or f.check != "witness"]
