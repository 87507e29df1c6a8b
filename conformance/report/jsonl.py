"""Result files: JSON lines, one per case. Under their final name they are always whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Generic, TypeVar

from conformance.errors import ResultError
from conformance.verdict import CaseResult, decode

R = TypeVar("R")


class ResultFile(Generic[R]):
    """A result file in the making: results are added to ``FILE.partial`` as they come.

    ``finish`` replaces ``FILE`` in one go; without it ``FILE`` stays what it was, and the partial
    file keeps what an interrupted run had found.

    Args:
        encode: a result as one line, without the newline.
    """

    def __init__(self, path: Path, encode: Callable[[R], str]) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self._encode = encode
        try:
            self._file: IO[str] = self.partial.open("w", encoding="utf-8")
        except OSError as error:
            raise ResultError(f"{path}: cannot write results there: {error.strerror}") from error

    def add(self, result: R) -> None:
        """Append one line to the partial file."""
        self._file.write(self._encode(result) + "\n")
        self._file.flush()

    def finish(self, results: Iterable[R]) -> None:
        """Write all ``results``, in this order, under the final name; drop the partial file."""
        self.close()
        whole = self.path.with_name(self.path.name + ".whole")
        lines = "".join(self._encode(result) + "\n" for result in results)
        whole.write_text(lines, encoding="utf-8")
        whole.replace(self.path)
        self.partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop writing; the partial file stays."""
        self._file.close()


def read_results(path: Path) -> tuple[CaseResult, ...]:
    """The results of a file.

    Raises:
        ResultError: the file cannot be read, or one of its lines is no result; says which.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ResultError(f"{path}: cannot read results: {error.strerror}") from error
    return tuple(
        decode(line, where=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )
