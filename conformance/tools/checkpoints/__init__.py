"""Real checkpoints: reads a folder, checks that it fits into memory, makes a family of it.

Loading weights and tokenizing text is the task of the plugins.
"""
