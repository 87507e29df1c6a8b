"""Faults of the libraries' servers, put into the process of a server that is started for it.

Those of what decodes are in the plugins of the libraries.
"""
