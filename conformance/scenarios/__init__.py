"""The scenario ladder: each rung adds one ingredient to the previous rung.

Schedules and the witnesses that they reached their purpose; playing them is in ``run/``.
"""

from conformance.scenarios.ladder import LADDER
from conformance.scenarios.scenario import Brief, Scenario, Witness

__all__ = ["LADDER", "Brief", "Scenario", "Witness"]
