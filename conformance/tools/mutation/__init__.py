"""Mutation testing: injected defects that checks must detect.

The defects themselves are in the plugins, their base in ``core/faults/``.
"""
