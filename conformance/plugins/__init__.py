"""Plugins that come with the package: one folder for each library, and the reference engine.

Plugins are found by their entry points and never imported by name. Code that the libraries'
plugins share is in ``backend/``.
"""
