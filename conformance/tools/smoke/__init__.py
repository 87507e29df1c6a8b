"""A few tiny steps that tell a broken adapter from a wrong engine."""

from conformance.tools.smoke.running import Smoke, State, smoke

__all__ = ["Smoke", "State", "smoke"]
