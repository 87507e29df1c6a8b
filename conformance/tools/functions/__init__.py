"""Functions that need no model, held to their definitions: ``conformance audit functions``.

The properties themselves are in the plugins, their base in ``core/properties.py``.
"""
