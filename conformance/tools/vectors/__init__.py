"""Portable vectors: checkpoints, schedules and goldens for engines that are none of our adapters.

`making` writes them, `judging` judges the trace that any program wrote of playing them.
"""
