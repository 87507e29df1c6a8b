"""The names of the tiers, without their data: also for a pytest run that plays no case."""

from __future__ import annotations

QUICK, DEFAULT, FULL = TIERS = ("quick", "default", "full")


def usual_tier(*, named: bool) -> str:
    """The tier of a run that names none.

    Args:
        named: whether it names families or scenarios, which are then played whole.
    """
    return FULL if named else DEFAULT
