"""``conformance show``: what is installed, and the whole evidence of one case.

The text of the evidence is in ``report/evidence.py``.
"""
