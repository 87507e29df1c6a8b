"""The reference engines as a plugin, and the faults that no library hosts.

The engines themselves are in ``conformance.reference``.
"""
