"""Output of a run for readers and CI systems, made from results only: no model, no pytest.

Pages are in ``pages/``; code that decides a verdict belongs in ``checks/`` or ``run/judging/``.
"""

from conformance.report.evidence import evidence_text
from conformance.report.junit import properties
from conformance.report.matrix import Cell, Matrix, Row, matrices
from conformance.report.message import failure_message, rerun_command
from conformance.report.outcome import Outcome, Tally, duration, slowest, tallies
from conformance.report.terminal import render, summary

__all__ = [
    "Cell",
    "Matrix",
    "Outcome",
    "Row",
    "Tally",
    "duration",
    "evidence_text",
    "failure_message",
    "matrices",
    "properties",
    "render",
    "rerun_command",
    "slowest",
    "summary",
    "tallies",
]
