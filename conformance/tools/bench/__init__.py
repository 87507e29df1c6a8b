"""How fast a run is, as ratios, and how many tokens a second each engine gives.

Counts and times of runs only; what a case costs in memory is a check.
"""
