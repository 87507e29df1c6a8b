"""The mlx-vlm plugin: its library, two batched engines, media, families, faults around it.

``legacy/`` is for old releases. What any library on mlx needs is in ``backend/``.
"""
