"""What proves the checks: defects put into the libraries, and definitions of their functions.

Nothing that runs, reports or explains a case needs it: only ``conformance audit`` and ``golden
verify`` do, and what ``explain``, ``explore`` and ``show`` say of historic defects. No stored
result or single stream depends on it.
"""
