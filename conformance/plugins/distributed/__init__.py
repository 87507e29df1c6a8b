"""Engines that split one model over several processes: mlx-lm's tensor parallel and pipeline.

How a group of processes is started, asked and ended, and what runs in each of them.
"""
