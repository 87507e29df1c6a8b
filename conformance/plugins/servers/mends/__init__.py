"""Mends of known defects of the libraries' servers, put into the process of a server.

Mends of the code that decodes are in the plugins of the libraries.
"""
