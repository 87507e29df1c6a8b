"""A library's exceptions as data: a crash, something it does not support, a full disk."""

from __future__ import annotations

import errno
import re
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

from conformance.core.errors import Unsupported
from conformance.core.missing_library import loader_error
from conformance.core.missing_names import missing_name
from conformance.core.trace import Failure

_UNSUPPORTED = re.compile(
    r"not (yet )?support|only supports?\b|unsupported|no metal back-?end|not implemented"
    r"|no implementation for",
    re.I,
)

# Errors that are not a library's fault.
_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EMFILE,
}
# mlx's messages for it; mlx/io/load.cpp, and where it keeps kernels that it compiled.
_UNWRITTEN = re.compile(
    r"\[write\] Unable to write \d+ bytes to file"
    r"|filesystem error: .*(No space left|Read-only file system|Permission denied|quota)"
)
# CUDA's messages for a GPU that workers, or other programs, have filled: a worker ends itself
# earlier if its own arrays are too many.
_NO_ROOM = re.compile(r"cuda\w+\(.*\) failed: out of memory")
# After these a device computes nothing more for the process: CUDA's errors persist, and Metal
# ignores later submissions.
_DEVICE_LOST = re.compile(
    r"illegal (memory access|instruction|address)|misaligned address|unspecified launch failure"
    r"|device-side assert|invalid program counter|hardware stack error|uncorrectable ECC"
    r"|Command buffer execution failed",
    re.I,
)


# Messages of a compiler or a device that may succeed the next time:
# mlx/backend/cuda/jit_module.cpp, mlx/backend/cpu/compiled.cpp and jit_compiler.cpp, when a kernel
# was read that another process was still writing, or memory was short.
_REFUSED = re.compile(
    r"There is no kernel named|Failed to load compiled|Could not load C\+\+ shared library"
    r"|Failed to compile (kernel|function)|CUDA_ERROR_OUT_OF_MEMORY"
)


def device_refused(message: str) -> bool:
    """Whether a device or its compiler refused something that may succeed when repeated alone."""
    return bool(_REFUSED.search(message) or _NO_ROOM.search(message))


def device_lost(message: str) -> bool:
    """Whether an error's message says that the device no longer serves the process.

    An earlier case may be the cause: devices report late.
    """
    return bool(_DEVICE_LOST.search(message))


def full_device(message: str) -> str | None:
    """A sentence for the user if an error's message says that the GPU has no memory left."""
    found = _NO_ROOM.search(message)
    if found is None:
        return None
    return f"the GPU has no memory left ({found[0]}): run fewer workers at once (--jobs)"


def machine_problem(error: BaseException | None) -> str | None:
    """A sentence about what this machine lacks, if that caused the exception.

    That is: room on a disk or a GPU, or write permission. ``None`` for all other exceptions.
    """
    while error is not None:
        if isinstance(error, (RuntimeError, ImportError)) and (full := full_device(str(error))):
            return full
        if isinstance(error, OSError) and error.errno in _MACHINE:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if isinstance(error, RuntimeError) and _UNWRITTEN.search(str(error)):
            return f"{tempfile.gettempdir()}: {error} Is the disk full? TMPDIR names another folder"
        error = error.__cause__
    return None


def says_unsupported(error: BaseException) -> bool:
    """Whether the library itself states, by the exception, that it cannot do this here.

    This is not a crash: nobody was misled. The message goes into the result, and an expectation
    must name it, unless the dynamic loader raised it: then this machine lacks a system library.
    """
    if isinstance(error, FailedElsewhere):
        return error.failure.unsupported
    if isinstance(error, (Unsupported, NotImplementedError)) or loader_error(error):
        return True
    if missing_name(error):
        return True
    # "'NoneType' object does not support item assignment" is Python's message, not the library's.
    if isinstance(error, TypeError):
        return False
    return bool(_UNSUPPORTED.search(str(error)))


class FailedElsewhere(Exception):  # noqa: N818
    """An exception that was raised in another process, as data."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def failure_of(error: BaseException, doing: str, *, theirs: bool = False) -> Failure:
    """An exception as data: its type, text, and the last frame outside of this project.

    Args:
        doing: the action that failed.
        theirs: it comes from foreign code, such as an engine, whose missing imports are failures.
    """
    if isinstance(error, FailedElsewhere):
        return replace(error.failure, doing=doing)
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    library = [f for f in frames if not f.filename.startswith(ours)] or frames
    last = library[-1]
    path = "/".join(Path(last.filename).parts[-3:])
    reason = loader_error(error) or missing_name(error) or error
    return Failure(
        type_name=type(reason).__name__,
        message=str(reason),
        frame=f"{path}:{last.lineno}",
        doing=doing,
        unsupported=says_unsupported(error) and not (theirs and loader_error(error)),
    )
