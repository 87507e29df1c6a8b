"""Servers as engines: mlx-lm's and mlx-vlm's, started by the plugin, and any server at a URL.

Engines that decode in this process belong in the plugin of their library.
"""
