"""What an exception is as data: whose it is, where it came from, what it says."""

import errno

import pytest
from miniatures.model import ToyModel
from miniatures.right import ContinuousBatching

from conformance.core.engine import Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import failure_of, machine_problem, says_unsupported


@pytest.mark.parametrize(
    ("error", "unsupported"),
    [
        (Unsupported("x"), True),
        (NotImplementedError("RotatingKVCache quantization NYI"), True),
        (ValueError("Batching is not yet supported for this model"), True),
        (ValueError("ArraysCache does not support batching with history"), True),
        (ValueError("only supports batches of one"), True),
        (RuntimeError("[conv] no Metal backend"), True),
        (RuntimeError("[quantized_matmul] No implementation for problem shape: 1x1x32x4"), True),
        (ValueError("not implemented"), True),
        (TypeError("'NoneType' object does not support item assignment"), False),
        (IndexError("list index out of range"), False),
        (ValueError("operands could not be broadcast"), False),
        (AttributeError("'KVCache' object has no attribute 'merge'"), False),
    ],
)
def test_only_the_librarys_own_message_makes_it_unsupported(error, unsupported):
    assert says_unsupported(error) is unsupported


def test_a_failure_names_the_last_frame_that_is_not_ours():
    """The harness called, and the library's frame is the one to look at."""
    try:
        Engine.extract(ContinuousBatching(ToyModel(), EngineOptions()), "a")
    except Unsupported as error:
        failure = failure_of(error, "extracting")
    assert failure.frame.startswith("unit/core/test_failures.py:")
    assert failure.message == "engine right cannot extract the cache of 'a'"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "/x/y: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (RuntimeError("[write] Unable to write 64 bytes to file."), "Is the disk full?"),
        (
            RuntimeError("filesystem error: cannot create directories: Read-only file system [/x]"),
            "Read-only file system",
        ),
        (
            ImportError("cudaMallocManaged(&data, size) failed: out of memory"),
            "the GPU has no memory left (cudaMallocManaged(&data, size) failed: out of memory)",
        ),
        (
            RuntimeError("cudaGetLastError() failed: out of memory"),
            "fewer workers at once (--jobs)",
        ),
        (RuntimeError("cudaGetLastError() failed: an illegal memory access"), None),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "weights"), None),
        (RuntimeError("Unable to write"), None),
        (ValueError("No space left on device"), None),
    ],
)
def test_what_the_machine_lacks_is_no_failure_of_the_library(error, text):
    assert (machine_problem(error) is None) == (text is None)
    assert (text or "") in (machine_problem(error) or "")
    wrapped = ValueError("loading failed")
    wrapped.__cause__ = error
    assert machine_problem(wrapped) == machine_problem(error)
