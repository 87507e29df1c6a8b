"""Mutation testing: injected defects that checks must detect.

The defects themselves are in ``power/faults/``, their base in ``core/faults/``.
"""
