"""Plain data, the protocols that plugins implement, and helpers for all other folders.

Nothing here imports mlx, pytest, or another folder of this package.
"""
