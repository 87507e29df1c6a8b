"""Runs a script in its own process."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from conformance.core.errors import NoScriptError
from conformance.core.library_source import source_folders
from conformance.core.processes import run_to_end
from conformance.tools.repro.found import Found
from conformance.tools.repro.refusing import Reason
from conformance.tools.repro.script import write_scripts
from conformance.tools.repro.template_values import docstring

_SECONDS = 120


@dataclass(frozen=True)
class Tried:
    """The result of a script: its output, and its exit code; ``None`` if it was ended."""

    code: int | None
    output: str

    def shows(self, mark: str = "") -> bool:
        """Whether the script ran to its end and shows the defect.

        Args:
            mark: for a crash, the type and file of the exception that must be raised.
        """
        ended = self.code == 1 and ("WRONG" in self.output or "FAILED (" in self.output)
        return ended and mark.partition(" ")[0] in self.output

    @property
    def last(self) -> str:
        """The exit code and the last line of output."""
        return f"exit code {self.code}: {(self.output.splitlines() or ['it printed nothing'])[-1]}"


def shown_by(
    found: Found, *, python: str = sys.executable, unittest: bool = False
) -> tuple[str, Tried]:
    """The first of the case's scripts that shows the defect, and its result.

    Raises:
        NoScriptError: no script can be written, or none of them shows the defect.
    """
    mark = found.symptom.mark if found.kind.crash else ""
    tries = []
    for text in write_scripts(found, unittest=unittest):
        tries.append(try_script(text, python=python, plugin=found.driven is not None))
        if tries[-1].shows(mark):
            return with_own_numbers(text, found, tries[-1]), tries[-1]
    message = f"the script does not show it, it ended with: {tries[0].last}"
    raise NoScriptError(f"{found.case}: {message}", Reason.DRAWN)


def with_own_numbers(text: str, found: Found, ended: Tried) -> str:
    """The script with what it printed itself in its docstring, in place of the case's finding.

    The script's weights are others than the case's, so its numbers are, too. The text of a known
    defect stays.
    """
    said = symptom_line(ended.output)
    if found.text != f"{found.symptom.what}." or not said:
        return text
    own = docstring(found, f"It prints: {said}.")
    return text.replace(docstring(found, found.text), own, 1)


def symptom_line(output: str) -> str:
    """The most informative line of the output: the largest difference, or the error."""
    lines = output.splitlines()[:-1]
    return max(lines, key=lambda line: ("Error" in line, _nats(line)), default="")


def _nats(line: str) -> float:
    words = line.split()
    number = words[-3] if line.endswith("nats apart") else "0"
    return float("inf") if number == "nan" else float(number)


def try_script(text: str, *, python: str = sys.executable, plugin: bool = False) -> Tried:
    """Run the script in a process and a folder of its own, with the libraries of this process.

    Args:
        python: of the environment to run it in, which does not need this project.
        plugin: the script imports an engine's package, which may be in the current folder.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        file = Path(folder) / "repro.py"
        file.write_text(text, encoding="utf-8")
        done = run_to_end(
            [python, *([] if plugin else ["-P"]), "-s", str(file)],
            seconds=_SECONDS,
            folder=Path(folder),
            environment=_environment(plugin=plugin),
        )
    if done.code is None:
        return Tried(None, done.why)
    if done.why:
        return Tried(None, f"no end after {_SECONDS} s")
    return Tried(done.code, (done.output + _quiet(done.errors)).strip())


def _environment(*, plugin: bool) -> dict[str, str]:
    """This process's environment without changes to imports, but with the checkouts used here.

    With ``plugin``, the current folder and the user's path are included too.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    folders = [*source_folders()]
    if plugin:
        folders += [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPATH": os.pathsep.join(folders)} if folders else kept


def _quiet(text: str) -> str:
    """The text without the lines that libraries print at import."""
    return "\n".join(line for line in text.splitlines() if "[transformers]" not in line)
