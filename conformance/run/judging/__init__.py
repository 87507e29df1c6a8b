"""From the schedules of a case to its result: plays them, runs the checks, checks the witnesses.

The checks themselves are in ``checks/``, schedules and witnesses in ``scenarios/``.
"""
