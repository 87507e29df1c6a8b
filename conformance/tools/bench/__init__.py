"""The speed of a run, as ratios, and the tokens per second of each engine.

Only runs are counted and timed here; the memory that a case uses is checked by a check.
"""
