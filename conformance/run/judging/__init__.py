"""From a case's schedules to its result: runs the schedules, the checks and the witnesses.

The checks themselves are in ``checks/``, schedules and witnesses in ``scenarios/``.
"""
