"""No Python code of a checkpoint folder is run unless the user allows it, whoever imports it.

Libraries have a flag for it, but not all their parts respect it: some of mlx-vlm's processors set
``trust_remote_code=True`` themselves. So the interpreter's audit hooks are used (PEP 578): there is
an event for each code object before it is executed, each extension module, and each class that a
pickle names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from conformance.core.errors import Unsupported

_COPIES = "transformers_modules"
"""Where transformers copies a folder's code to before it imports it: a package of this name."""


@contextlib.contextmanager
def sealed(folder: Path | None, *, trusted: bool) -> Iterator[None]:
    """Within it, no code of ``folder`` is run and nothing is unpickled, unless it is ``trusted``.

    Args:
        folder: of a real checkpoint. ``None``: there is none, but a config may still name code on
            the Hub, which transformers would fetch and run.

    Raises:
        Unsupported: something was about to; the message names the file.
    """
    if trusted:
        yield
        return
    folders = _sealed_folders()
    folders.append(os.path.realpath(folder) if folder else "")
    try:
        yield
    finally:
        folders.pop()


@functools.cache
def _sealed_folders() -> list[str]:
    """The folders that are sealed now; adds the audit hook, which can't be removed, once."""
    folders: list[str] = []
    ours = Path(__file__).parents[1]
    own = tuple({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ours)})

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not folders:
            return
        folder = folders[-1]
        if event == "pickle.find_class" and folder:
            raise Unsupported(
                f"{folder}: holds a pickle, which may run any code as it is read; convert it to "
                "safetensors"
            )
        if (file := _file_of(event, arguments)) and _belongs(file, folder, own):
            raise Unsupported(
                f"{folder or 'the config'}: asks for Python code of its own to be run ({file}); "
                "--trust-remote-code allows it"
            )

    sys.addaudithook(hook)
    return folders


def _file_of(event: str, arguments: tuple[Any, ...]) -> str:
    """The file whose code is about to be run; empty for every other event."""
    if event == "exec" and isinstance(arguments[0], CodeType):
        return arguments[0].co_filename
    if event == "import" and arguments[1]:
        return str(arguments[1])
    return str(arguments[0] or "") if event == "ctypes.dlopen" else ""


def _belongs(file: str, folder: str, own: tuple[str, ...]) -> bool:
    """Whether a file is of the folder, or a copy of such; an environment inside it is not."""
    if file.startswith("<"):  # made by a program, or part of the interpreter
        return False
    if _COPIES in Path(file).parts:
        return True
    real = os.path.realpath(file)
    return bool(folder) and _below(real, folder) and not any(_below(real, root) for root in own)


def _below(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)
