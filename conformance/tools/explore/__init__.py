"""Random schedules and programs: generated and shrunk by Hypothesis, failures kept in ``corpus/``.

The ladder's own schedules, written by hand, belong to ``scenarios/``.
"""
