"""Runs on the machines of a Dask cluster: the client's part and the workers' part.

Only this folder imports ``distributed``, which the extra ``cluster`` installs.
"""
