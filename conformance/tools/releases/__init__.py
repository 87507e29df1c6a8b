"""Runs the ladder against several releases of a library: when was a defect added, when fixed?

What differs between releases for the adapters belongs to ``compat.py`` of each plugin.
"""
