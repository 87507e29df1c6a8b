"""The reference engines as a plugin, and the faults that belong to no library.

The engines themselves are in ``conformance.reference``.
"""
