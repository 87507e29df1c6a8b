"""Runs on the machines of a Dask cluster: what the client does, and what its workers do.

Only this folder imports ``distributed``, of the extra ``cluster``.
"""
