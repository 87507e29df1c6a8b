"""Schedules that nobody thought of: made and shrunk by Hypothesis, kept in ``corpus/``."""
