"""Proves the checks: injects defects into the libraries, and compares functions with definitions.

Running, reporting or explaining a case does not need this package. ``conformance audit`` and
``golden verify`` do, and so do ``explain``, ``explore`` and ``show`` for faults. No
stored result or single stream depends on it.
"""
