"""The scenario ladder: each rung adds one ingredient to the previous rung.

Schedules and the witnesses that they reached their purpose; running them belongs in ``judging/``.
"""

from conformance.scenarios.base import Brief, Scenario, Witness
from conformance.scenarios.ladder import LADDER

__all__ = ["LADDER", "Brief", "Scenario", "Witness"]
