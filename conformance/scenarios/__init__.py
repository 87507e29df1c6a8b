"""The scenario ladder: each rung adds one ingredient to the rung before."""

from conformance.scenarios.base import Brief, Scenario, Witness
from conformance.scenarios.ladder import LADDER

__all__ = ["LADDER", "Brief", "Scenario", "Witness"]
