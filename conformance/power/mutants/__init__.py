"""Mutation testing of the installed libraries: small changes to their code that checks must detect.

The operators of a mutation library make the mutants; historic defects are in ``power/mutation/``.
"""
