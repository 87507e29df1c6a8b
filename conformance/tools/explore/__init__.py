"""Random schedules and programs: generated and shrunk by Hypothesis, failures kept in ``corpus/``.

The ladder's own hand-written schedules belong in ``scenarios/``.
"""
