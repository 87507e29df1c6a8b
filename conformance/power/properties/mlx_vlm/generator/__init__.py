"""Properties of mlx-vlm's batch generator and of its parts: rows, steps, drafts, samplers.

Scenarios test batches of a model.
"""
