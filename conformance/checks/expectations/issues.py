"""Short scripts for upstream issues about the known defects that reach most, and their output.

``expectations/issues/ID.py`` is the script, ``ID.txt`` what it printed: the release, then the
output. ``python ci/issues.py`` runs the scripts and writes their output.
"""

from __future__ import annotations

from pathlib import Path

from conformance.checks.expectations.loading import OWN
from conformance.core.errors import ExpectationError
from conformance.core.issue_script import IssueScript
from conformance.core.user_files import read_text


def issue_scripts(folder: Path | None = None) -> dict[str, IssueScript]:
    """The scripts of a folder of expectations, by default the project's own, by known defect.

    Raises:
        ExpectationError: a script has no output, or a file cannot be read.
    """
    issues = (OWN if folder is None else folder) / "issues"
    return {path.stem: _read(path) for path in sorted(issues.glob("*.py"))}


def _read(path: Path) -> IssueScript:
    printed = path.with_suffix(".txt")
    if not printed.is_file():
        raise ExpectationError(f"{path}: its output is not there; run python ci/issues.py")
    release, _, output = read_text(printed, ExpectationError).partition("\n")
    return IssueScript(read_text(path, ExpectationError), release, output.strip())
