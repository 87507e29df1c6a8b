"""The mlx-lm plugin: families, the single stream, and two batched engines."""
