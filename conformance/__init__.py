"""Proves that batched decoding on MLX gives what single-stream decoding gives.

The architecture is drawn in ``ARCHITECTURE.md``; the terms used in names are defined there.
"""

__version__ = "0.1.0"
