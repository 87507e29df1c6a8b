"""Properties of mlx-vlm's cache classes.

Random sequences of their methods belong in ``power/caches``.
"""
