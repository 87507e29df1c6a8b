"""A tiny library and tiny engines on it, in NumPy: one right, one with each wrongness, some fakes.

A check that has never failed proves nothing. ``right`` must be exact on every scenario; each engine
of ``wrong`` must get the verdict of its one wrongness; each of ``fakes`` does everything right but
what a scenario is about, and that scenario must be vacuous on it.
"""
