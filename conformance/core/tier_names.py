"""The names of the tiers, without their data: also for a pytest run without cases."""

from __future__ import annotations

QUICK, DEFAULT, FULL = TIERS = ("quick", "default", "full")


def usual_tier(*, named: bool) -> str:
    """The default tier of a run.

    Args:
        named: whether the run names families or scenarios, which then run in full.
    """
    return FULL if named else DEFAULT
