"""The mlx-vlm plugin: its library, its engine and the families of its models."""
