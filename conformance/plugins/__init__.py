"""Plugins that come with the package: one folder for each library, and the reference engine.

Found by their entry points and never imported by name; what both share is in ``backend/``.
"""
