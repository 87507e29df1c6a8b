"""Result files: JSON lines, one per case. Under its final name a file is always complete."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Generic, TypeVar

from conformance.core.errors import ResultError
from conformance.core.verdict import CaseResult, decode

R = TypeVar("R")


class ResultFile(Generic[R]):
    """Writes a result file: results are appended to ``FILE.partial`` as they arrive.

    ``finish`` replaces ``FILE`` atomically; without it ``FILE`` is unchanged, and the partial file
    keeps the results of an interrupted run. Only one run at a time writes a file.

    Args:
        encode: a result as one line, without the newline.

    Raises:
        ResultError: the file can't be written, or another run is writing it.
    """

    def __init__(self, path: Path, encode: Callable[[R], str]) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self._encode = encode
        with _result_errors(path):
            self._file: FileIO = _only_writer(path, self.partial)

    def add(self, result: R) -> None:
        """Append one line to the partial file, which has complete lines only.

        Raises:
            ResultError: it cannot be written, for example because the disk is full.
        """
        data, end = (self._encode(result) + "\n").encode(), self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(end)
            raise _unwritable(self.path, error) from error

    def finish(self, results: Iterable[R]) -> None:
        """Write all ``results``, in this order, under the final name; drop the partial file.

        Raises:
            ResultError: it cannot be written; then the partial file stays.
        """
        write_lines(self.path, map(self._encode, results))
        self.partial.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Stop writing; the partial file stays."""
        self._file.close()


def _only_writer(path: Path, partial: Path) -> FileIO:
    """The partial file, empty and locked until it is closed or this process ends.

    Raises:
        ResultError: another run has locked it.
    """
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
        file.close()  # the other run ended between our two steps and removed its file


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file of these lines, completely or not at all.

    Raises:
        ResultError: it cannot be written.
    """
    # Named after the process, because another one may be writing the same file.
    whole = path.with_name(f"{path.name}.{os.getpid()}.whole")
    with _result_errors(path):
        try:
            whole.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            whole.replace(path)
        finally:
            whole.unlink(missing_ok=True)


@contextlib.contextmanager
def _result_errors(path: Path) -> Iterator[None]:
    """Turn an operating system error about a file into ``ResultError``."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ResultError:
    return ResultError(f"{path}: cannot write results there: {error.strerror}")


def read_results(path: Path) -> tuple[CaseResult, ...]:
    """The results of a file; of a partial file all complete lines.

    Raises:
        ResultError: the file cannot be read, or one of its lines is not a result; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{path}: cannot read results: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ResultError(f"{path}: cannot read results: it is not UTF-8 text") from error
    lines = text.split("\n")
    if path.suffix == ".partial":
        lines = lines[:-1]  # text after the last newline was being written when the run ended
    return tuple(
        decode(line, where=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )
