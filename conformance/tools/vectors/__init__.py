"""Portable test vectors: checkpoints, schedules and goldens for engines without an adapter here.

``exporting`` writes them; ``judging`` judges a trace that any program recorded while running them.
No engine is run here.
"""
