"""Functions that need no model, held to their definitions: ``conformance audit functions``.

The properties themselves are in ``power/properties/``, their base in ``core/properties.py``.
"""
