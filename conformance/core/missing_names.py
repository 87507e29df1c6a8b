"""Names of a library that this project uses, and that the installed release does not have.

A private name may be gone in any release: then only what uses it is ``unsupported``.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from conformance.core.errors import Unsupported
from conformance.core.library_paths import MODULES
from conformance.core.verdict import Finding

_OWN = str(Path(__file__).parents[1])
_SAYS = "unsupported here: "
_NAMED = re.compile(rf"{_SAYS}[\w.]+")
# Python's message; ``ImportError`` has the missing name as an attribute only from 3.12 on.
_IMPORTED = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def lacks(owner: object, name: str) -> Unsupported:
    """The error that names a missing attribute of a library's module, class or object in full."""
    if isinstance(owner, ModuleType):
        place = owner.__name__
    else:
        kind = owner if isinstance(owner, type) else type(owner)
        place = f"{kind.__module__}.{kind.__qualname__}"
    return Unsupported(f"{_SAYS}{place}.{name}")


def missing_name(error: BaseException) -> Unsupported | None:
    """The same for a name of a library's module, or a private one, that code of ours did not find.

    ``None`` for all other errors: a library that lacks a name of its own is broken, and so is an
    object without a public method.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not frames[-1].filename.startswith(_OWN):
        return None
    if isinstance(error, ImportError) and (parts := _IMPORTED.match(str(error))):
        found, of_module = Unsupported(f"{_SAYS}{parts[2]}.{parts[1]}"), True
    elif isinstance(error, AttributeError) and error.obj is not None and error.name:
        found, of_module = lacks(error.obj, error.name), isinstance(error.obj, ModuleType)
    else:
        return None
    place, _, name = str(found).rpartition(".")
    private = name.startswith("_") and not name.endswith("__")
    theirs = place.removeprefix(_SAYS).partition(".")[0] in MODULES
    return found if theirs and (private or of_module) else None


def missing_names(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The sentence about each missing name in a case's evidence."""
    texts = (text for finding in findings for text in (finding.what, finding.got))
    return tuple(dict.fromkeys(found[0] for text in texts if (found := _NAMED.search(text))))
