"""Adapters for mlx-vlm 0.4 and 0.5, which are older than the declared minimum of 0.7.10.

``conformance releases`` needs them: it runs old releases to find which one introduced or fixed a
defect.
"""
