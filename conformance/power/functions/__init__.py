"""Checks functions that need no model against definitions: ``conformance audit functions``.

The properties themselves are in ``power/properties/``, their base in ``core/properties.py``.
"""
