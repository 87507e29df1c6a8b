"""Mutation testing of the installed libraries: small changes of their code that checks must detect.

Mutants are made by the operators of a library; ``power/mutation/`` has historic defects instead.
"""
