"""Properties of code that mlx-vlm's models share: positions, sparse attention, use of kernels.

Properties that both libraries have in common are in ``backend``.
"""
