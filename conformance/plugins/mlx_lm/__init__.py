"""The mlx-lm plugin: its families, its single stream, its two batched engines."""
