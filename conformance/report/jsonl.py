"""Result files: JSON lines, a header, then one per case. A file with its final name is complete."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from conformance.core.errors import ConformanceError, ResultError
from conformance.core.excused import excused
from conformance.core.output_files import is_stream, target_of, write_whole
from conformance.core.run_header import RunHeader, decode_header
from conformance.core.user_files import MOST_BYTES, read_text, typed_json
from conformance.core.verdict import (
    CaseResult,
    decode,
    encode,
    most_severe,
)
from conformance.report.message import RULE

T = TypeVar("T")


class ResultFile:
    """Writes a result file: results are appended to ``FILE.partial`` as they arrive.

    ``finish`` replaces ``FILE`` atomically; without it ``FILE`` is unchanged, and the partial file
    keeps the results of an interrupted run. Only one run at a time writes a file. A special file,
    such as a pipe, gets all results at the end, and nothing of an interrupted run.

    Args:
        path: ``None`` to write nothing.

    Raises:
        ResultError: the file can't be written, or another run is writing it.
    """

    def __init__(self, path: Path | None) -> None:
        path = path or Path(os.devnull)
        with _result_errors(path):
            self.path = path if is_stream(path) else target_of(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        self._header = ""
        self._file: FileIO | None = None
        if not is_stream(path):
            with _result_errors(path):
                self._file = _only_writer(self.path, self.partial)

    @property
    def kept(self) -> bool:
        """Whether the partial file has results."""
        return self._file is not None and self.partial.exists() and self.partial.stat().st_size > 0

    def begin(self, header: RunHeader) -> None:
        """Record the planned cases before the first result; ``finish`` writes the last such record.

        Raises:
            ResultError: it cannot be written, for example because the disk is full.
        """
        first, self._header = not self._header, encode(header)
        if first:
            self._append(self._header)

    def add(self, result: msgspec.Struct) -> None:
        """Append one line to the partial file, which has complete lines only.

        Raises:
            ResultError: it cannot be written, for example because the disk is full.
        """
        self._append(encode(result))

    def finish(self, results: Iterable[msgspec.Struct]) -> None:
        """Write all ``results``, in this order, under the final name; drop the partial file.

        Raises:
            ResultError: it cannot be written; then the partial file stays.
        """
        header = (self._header,) if self._header else ()
        write_lines(self.path, (*header, *map(encode, results)))
        if self._file is not None:
            self.partial.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Stop writing; the partial file stays."""
        if self._file is not None:
            self._file.close()

    def _append(self, line: str) -> None:
        if self._file is None:
            return
        data, end = f"{line}\n".encode(), self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(end)
            raise _unwritable(self.path, error) from error


def _only_writer(path: Path, partial: Path) -> FileIO:
    """The partial file, empty and locked until it is closed or this process ends."""
    while True:
        file = partial.open("ab", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise ResultError(
                f"{path}: another run is writing its results there; wait until it ends, or choose "
                "another file"
            ) from error
        except OSError:
            pass  # some network file systems have no locks
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == partial.stat().st_ino:
                file.seek(file.truncate(0))
                return file
        file.close()  # the other run ended in between and removed its file


def read_records(
    path: Path, kind: type[T], what: str, failed: type[ConformanceError]
) -> Iterator[T]:
    """The records of a file with one in each line; of a ``.partial`` file, the whole lines.

    Args:
        what: why a line is refused: ``not a result of ...``.

    Raises:
        ConformanceError: of the type ``failed``; it cannot be read, or a line is no such record.
    """
    for where, line in _lines(path, failed):
        yield typed_json(line, kind, f"{where}: {what}", failed)


def _lines(path: Path, failed: type[ConformanceError]) -> Iterator[tuple[str, str]]:
    """The place and the text of each line that is not blank."""
    lines = read_text(path, failed, most=MOST_BYTES).split("\n")
    if path.suffix == ".partial":
        lines = lines[:-1]  # text after the last newline was being written when the run ended
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file of these lines, completely or not at all.

    Raises:
        ResultError: it cannot be written.
    """
    with _result_errors(path):
        write_whole(path, "".join(f"{line}\n" for line in lines))


def write_results(
    path: Path, results: Sequence[CaseResult], header: RunHeader | None = None
) -> None:
    """Writes a result file at once.

    Raises:
        ResultError: it cannot be written.
    """
    first = (encode(header),) if header else ()
    write_lines(path, (*first, *map(encode, results)))


@contextlib.contextmanager
def _result_errors(path: Path) -> Iterator[None]:
    """Turn an operating system error about a file into ``ResultError``."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ResultError:
    return ResultError(f"{path}: cannot write results there: {error.strerror}")


@dataclass(frozen=True)
class RunFile:
    """A result file: its results, and its header if it has one."""

    results: tuple[CaseResult, ...]
    header: RunHeader | None = None

    @property
    def missing(self) -> int:
        """How many of the planned cases have no result; 0 if unknown."""
        return max(0, self.header.planned - len(self.results)) if self.header else 0


def read_run(path: Path) -> RunFile:
    """Read a result file; of a partial file, all complete lines.

    Raises:
        ResultError: the file cannot be read, a line is not a result or contradicts itself, a case
            is there twice, or there are more cases than planned; the message names the line.
    """
    header: RunHeader | None = None
    found: dict[str, CaseResult] = {}
    for where, line in _lines(path, ResultError):
        if begins := decode_header(line, where=where):
            if header is not None or found:
                raise ResultError(
                    f"{where}: another result file begins here; name each file to the command, in "
                    "place of both in one"
                )
            header = begins
            continue
        result = decode(line, where=where)
        if why := contradiction(result):
            raise ResultError(f"{where}: {result.case}: {why}")
        if result.case in found:
            raise ResultError(f"{where}: the case {result.case} is there twice")
        found[result.case] = result
    if header is not None and len(found) > header.planned:
        raise ResultError(
            f"{path}: the header says that {header.planned} cases were planned, and {len(found)} "
            "have a result"
        )
    return RunFile(tuple(found.values()), header)


def read_results(path: Path) -> tuple[CaseResult, ...]:
    """The results of ``read_run``."""
    return read_run(path).results


# Contradictions within a line of a result file, which no run would write -------------------------


def contradiction(result: CaseResult) -> str:
    """The first contradiction, as the rest of a sentence; empty if there is none."""
    if denied := _verdict_denied(result):
        return denied
    played = {schedule.name for schedule in result.schedules}
    known = result.known or excused(result.verdict, result.evidence)
    if result.expected and not (result.verdict.good or known):
        return f"'expected' is true, but {result.verdict} is the verdict and no defect is known"
    if both := played.intersection(result.left_out):
        return f"the schedule {min(both)!r} was played and left out"
    for witness in result.witnesses:
        if unplayed := set(witness.schedules) - played:
            return f"{min(unplayed)!r} shows {witness.name!r}, but was not played"
    return ""


def _verdict_denied(result: CaseResult) -> str:
    """Schedules and findings that contradict the verdict."""
    worst = most_severe(s.verdict for s in result.schedules)
    found = [f for f in result.evidence if not f.mended and f.check != RULE]
    against = most_severe(f.verdict for f in found)
    if result.verdict.good and not (worst.good and against.good):
        of = "schedule" if not worst.good else "finding"
        worse = worst if not worst.good else against
        return f"the verdict is {result.verdict}, but that of a {of} is {worse}"
    if worst.severity > result.verdict.severity:
        return f"the verdict is {result.verdict}, but that of a schedule is {worst}"
    return ""


# The published JSON Schema of one line of a result file ------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def derived_schema() -> dict[str, Any]:
    """The schema derived from ``CaseResult`` and ``RunHeader``; the published one is the same."""
    template = "#/$defs/{name}"
    either, parts = msgspec.json.schema_components((CaseResult, RunHeader), ref_template=template)
    return {
        "$schema": DIALECT,
        "title": "mlx-conformance result",
        "description": "One line of a result file of `conformance run --json`: one case, or the "
        "header, which comes first.",
        "anyOf": list(either),
        "$defs": cleaned(parts),
    }


def cleaned(node: Any) -> Any:
    """Descriptions without indentation; before Python 3.13 docstrings keep it."""
    if isinstance(node, dict):
        return {
            key: inspect.cleandoc(value) if key == "description" else cleaned(value)
            for key, value in node.items()
        }
    return [cleaned(item) for item in node] if isinstance(node, list | tuple) else node


def schema_text() -> str:
    """``derived_schema`` as the text of the published file."""
    return json.dumps(derived_schema(), indent=2) + "\n"
