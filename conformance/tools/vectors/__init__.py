"""Portable test vectors: checkpoints, schedules and goldens for engines without an adapter here.

``exporting`` writes them; ``judging`` judges the trace that any program wrote of playing them.
Nothing here runs an engine.
"""
