"""Mutation testing: injected defects that checks must detect, right runs that they must pass.

The defects themselves belong to the plugins and ``faults/``.
"""
