"""Full-size configs of published models, as ``tests/configs/`` has them written down."""

import json
from pathlib import Path

import pytest

from conformance.core.verdict import CaseResult

CONFIGS = Path(__file__).parents[3] / "configs"


def config_path(name):
    """The file of a config, be it alone or in a folder."""
    folder = CONFIGS / name
    return folder / "config.json" if folder.is_dir() else CONFIGS / f"{name}.json"


@pytest.fixture
def published():
    """A published config by its name."""

    def read(name):
        return json.loads(config_path(name).read_text())

    return read


@pytest.fixture
def result():
    """A rung's result."""

    def make(scenario, verdict, *, expected=True, known=None):
        """A rung's result."""
        return CaseResult(
            case=f"e/mine/{scenario}/float32/0",
            engine="e",
            family="mine",
            scenario=scenario,
            dtype="float32",
            seed=0,
            verdict=verdict,
            expected=expected,
            known=known,
            max_abs_diff=None,
            noise=None,
            ratio=None,
            first_bad_step=None,
            evidence=(),
            versions={},
            device="cpu",
            seconds=0.0,
            forward_seconds=0.0,
            schedules=(),
        )

    return make
