"""Properties of mlx-vlm's batch generator and of its parts: rows, steps, drafts, samplers.

What batches of a model give is played by the scenarios.
"""
