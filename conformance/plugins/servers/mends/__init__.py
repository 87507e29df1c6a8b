"""Repairs of known defects of the libraries' servers, put into the process of a server.

Those of what decodes are in the plugins of the libraries.
"""
