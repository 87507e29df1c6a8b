"""Runs the ladder on several releases of a library: which release added a defect, which fixed it?

Differences between releases that concern adapters belong in ``compat.py`` of each plugin.
"""
