"""Mutation testing of the installed libraries: small changes to their code that checks must detect.

The operators of a mutation library make the mutants; faults are in ``power/mutation/``.
"""
