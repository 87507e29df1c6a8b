"""Plain data, the protocols that plugins implement, and what every other folder may use.

Nothing here imports mlx, pytest, or another folder of this package.
"""
