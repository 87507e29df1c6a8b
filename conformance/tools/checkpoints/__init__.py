"""Real checkpoints: reads a folder, checks that it fits into memory, makes a family of it.

How weights are loaded and text is tokenized belongs to the plugins.
"""
