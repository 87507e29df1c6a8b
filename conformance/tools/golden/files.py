"""Golden files on disk: each is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.core import output_files
from conformance.core.errors import GoldenError
from conformance.tools.golden.format import Verification, load_golden, parse_golden, to_text


def put_verified(path: Path, verification: Verification) -> None:
    """Record in the golden at ``path`` that an independent implementation verified it.

    Raises:
        GoldenError: there is no valid golden, or it cannot be written; the file is unchanged.
    """
    golden = load_golden(path)
    provenance = msgspec.structs.replace(golden.provenance, verified=verification)
    write_whole(path, to_text(msgspec.structs.replace(golden, provenance=provenance)))


def write_whole(path: Path, text: str) -> None:
    """Write a golden's text to ``path`` atomically.

    Raises:
        GoldenError: the text is not a valid golden, or it cannot be written; nothing has changed.
    """
    parse_golden(text, path=str(path))  # fails before anything is written
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output_files.write_whole(path, text)
    except OSError as error:
        raise GoldenError(f"{path}: cannot write the golden: {error.strerror}") from error
