"""Adapters for mlx-lm 0.28.0 to 0.31.3, which are older than the declared minimum of 0.32.0.

``conformance releases`` needs them: it runs old releases to find which one introduced or fixed a
defect.
"""
