"""A few steps on a tiny model that distinguish a broken adapter from a wrong engine.

Judging outputs in depth is the task of the scenarios and ``checks/``.
"""

from conformance.tools.smoke.smoke_run import Smoke, State, smoke

__all__ = ["Smoke", "State", "smoke"]
