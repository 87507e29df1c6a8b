"""The mlx-lm plugin: its library, two batched engines, families, and faults around it.

``legacy/`` is for old releases. What any library on mlx needs is in ``backend/``.
"""
