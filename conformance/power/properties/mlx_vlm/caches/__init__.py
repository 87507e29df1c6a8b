"""Properties of mlx-vlm's cache classes.

Random sequences of their methods are in ``power/caches``.
"""
