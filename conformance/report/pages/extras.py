"""Reads the output of other commands about single cases: explanations and scripts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from conformance.core.errors import ReportError
from conformance.core.user_files import read_text, typed_json
from conformance.core.verdict import CaseResult
from conformance.report.explanation import Explanation
from conformance.report.pages.slugs import case_slug


def read_explanations(folder: Path) -> dict[str, Explanation]:
    """The output of ``conformance explain --json``, by case id; only without a fault.

    Raises:
        ReportError: a ``.json`` or ``.jsonl`` file cannot be read, or is not such output; names the
            ReportError: a ``.json`` or ``.jsonl`` file cannot be read, or is not such output; the
            message
    """
    found = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")]):
        for number, line in enumerate(_text(path).split("\n"), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}: not the output of `conformance explain --json`"
            explanation = typed_json(line, Explanation, where, ReportError)
            if not explanation.fault:  # with a fault it does not explain the case without it
                found[explanation.case] = explanation
    return found


def read_scripts(folder: Path, results: Iterable[CaseResult]) -> dict[str, str]:
    """The scripts in the folder and its subfolders, by case id.

    A case's own script has the name shown on its page. Otherwise the script of a known defect of
    the case is used, named as ``repro --known`` names it: ``kv_offset.py`` for ``kv-offset``.

    Raises:
        ReportError: one cannot be read.
    """
    there = {path.stem: path for path in sorted(folder.rglob("*.py"), reverse=True)}
    found = {}
    for result in results:
        defects = (result.known or "").replace("-", "_").split(", ")
        path = next((there[n] for n in (case_slug(result.case), *defects) if n in there), None)
        if path is not None:
            found[result.case] = _text(path)
    return found


def _text(path: Path) -> str:
    return read_text(path, ReportError)
