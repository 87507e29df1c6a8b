"""Full-size configs of published models, as ``tests/configs/`` has them written down."""

import json
from pathlib import Path

import pytest
from results_by_hand import make_result

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
        case = f"e/mine/{scenario}/float32/0"
        return make_result(case, verdict, expected=expected, known=known, evidence=(), noise=None)

    return make
