"""Engines that split one model over several processes: mlx-lm's tensor and pipeline parallelism.

Starts, calls and ends a group of processes; ``rank`` runs in each of them.
"""
