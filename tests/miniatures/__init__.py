"""A tiny library and tiny engines on it, in NumPy: a right one, one for each error, some fakes.

A check that has never failed proves nothing. ``right`` must be exact on every scenario; each engine
of ``wrong`` must get the verdict of its one error; each of ``fakes`` gives right output without
doing what a scenario is about, and that scenario must be vacuous on it. Tests themselves are in
``unit/``.
"""
