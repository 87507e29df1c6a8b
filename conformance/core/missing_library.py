"""System libraries that a library's processor needs and this machine lacks.

Only the libraries named here: anything else missing is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from conformance.core.verdict import Finding, Verdict

# The dynamic loader's message (glibc, elf/dl-load.c), as Python and ctypes pass it on.
_MESSAGE = re.compile(r"(\S+): cannot open shared object file")
_FOUND = re.compile(rf"(?:ImportError|OSError): {_MESSAGE.pattern}")

# The Debian and Ubuntu packages that Python packages for images, video and sound need.
_PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libSM.so.6": "libsm6",
    "libX11.so.6": "libx11-6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgomp.so.1": "libgomp1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libopenblas.so.0": "libopenblas0",
    "libsndfile.so": "libsndfile1",
    "libsndfile.so.1": "libsndfile1",
    "libxcb.so.1": "libxcb1",
}


def loader_error(error: BaseException | None) -> ImportError | OSError | None:
    """The dynamic loader's own exception about a file that is named here, if it is the cause.

    Only exceptions raised ``from`` it: an exception on the way to another import is not a cause.
    """
    while error is not None:
        found = _MESSAGE.match(str(error)) if isinstance(error, (ImportError, OSError)) else None
        if found and found[1] in _PACKAGES:
            assert isinstance(error, (ImportError, OSError))
            return error
        error = error.__cause__
    return None


def lacking(verdict: Verdict, findings: Iterable[Finding]) -> str:
    """The file without which a case could not be run; empty if this is not what stopped it."""
    if verdict is not Verdict.UNSUPPORTED:
        return ""
    refusals = [found for found in findings if found.verdict is Verdict.UNSUPPORTED]
    files = [found[1] if (found := _FOUND.match(one.got)) else "" for one in refusals]
    return files[0] if files and all(file in _PACKAGES for file in files) else ""


def remedied(lack: ImportError | OSError | str) -> str:
    """What is missing and how to install it, from the file's name or the loader's error."""
    found = _MESSAGE.match(str(lack))
    file = found[1] if found else str(lack)
    return f"{file} is missing; on Debian and Ubuntu `apt-get install {_PACKAGES[file]}` brings it"
