"""Workloads: schedules that mix many ingredients, as a busy server does.

A rung of the ladder adds one ingredient. A workload has all that an engine can do at once: rows of
unequal lengths and limits, fewer slots than requests, joins and removals in every stage, ends of
every kind. No two of its rows are alike, but where equal rows are to draw unequal tokens.
"""


def is_workload(scenario: str) -> bool:
    """Whether the scenario with this name is a workload."""
    return scenario.startswith(("traffic", "marathon", "distributions"))
