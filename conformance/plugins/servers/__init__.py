"""Servers as engines: those of mlx-lm and mlx-vlm, started here, and any at a URL.

What decodes inside of this process belongs into the plugin of its library.
"""
