"""The mlx-vlm plugin: the library, two batched engines, media, families, faults and mends.

``legacy/`` is for old releases. Code for any library on mlx is in ``backend/``.
"""
