"""The scenario ladder: each rung adds one ingredient to the previous rung.

Has the schedules, and the witnesses that they reached their purpose; ``run/`` runs them.
"""

from conformance.scenarios.ladder import LADDER
from conformance.scenarios.scenario import Brief, Scenario, Witness

__all__ = ["LADDER", "Brief", "Scenario", "Witness"]
