"""Properties of what mlx-vlm's models share: positions, sparse attention, kernels' conditions.

What both libraries have in common is in ``backend``.
"""
