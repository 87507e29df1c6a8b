"""A golden file: one family's single streams as readable JSON, one line for each request.

The layout shows a reviewer what a pull request changed: provenance has one field per line, and then
each request has its own line. ``digest`` detects manual edits.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from conformance.core import output_files
from conformance.core.errors import GoldenError
from conformance.core.schedule import Request
from conformance.core.user_files import parse_json, read_text, read_toml, typed

FORMAT = 1
"""Version of the format of golden files; a file with another number is refused."""


class Verification(msgspec.Struct, frozen=True):
    """An independent implementation gave the same output.

    ``difference`` is the largest of logprobs, in nats, over ``tokens`` greedy steps.
    """

    against: str
    difference: float
    tokens: int


class Provenance(msgspec.Struct, frozen=True):
    """Where a golden is from.

    Attributes:
        recipe: SHA-256 of the family's config and of all that determines its weights and prompts.
        weights: SHA-256 of the bits of the parameters that the library had loaded.
        versions: of the library and of the packages that its numbers depend on.
        device: that it was made on.
        oracle: the procedure that gave the numbers, and what they were compared with.
        verified: by an independent implementation, if it was.
    """

    recipe: str
    weights: str
    versions: dict[str, str]
    device: str
    oracle: str
    verified: Verification | None = None


class Recorded(msgspec.Struct, frozen=True):
    """One request and its single stream.

    Attributes:
        request: that was decoded as a single stream.
        tokens: greedy, one for each step.
        margins: at each step the best logprob minus the second, in nats.
        noise: at each step how far rounding alone may move the logprobs of ``top``, in nats.
        top: at each step the most likely tokens with their logprobs, the best first.
    """

    request: Request
    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    noise: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]


class Golden(msgspec.Struct, frozen=True):
    """The content of one golden file. ``dtype`` and ``seed`` are those of the weights."""

    library: str
    family: str
    dtype: str
    seed: int
    provenance: Provenance
    requests: tuple[Recorded, ...]


class _File(Golden, frozen=True, forbid_unknown_fields=True):
    """A golden as stored in its file."""

    format: int
    digest: str


def to_text(golden: Golden) -> str:
    """The file's text; the same golden gives the same bytes on every platform."""
    head: dict[str, Any] = {"format": FORMAT, **msgspec.to_builtins(golden)}
    requests = head.pop("requests")
    body = json.dumps(head, indent=1, ensure_ascii=True).removesuffix("\n}")
    lines = ",\n".join("  " + json.dumps(line, separators=(",", ":")) for line in requests)
    return f'{body},\n "requests": [\n{lines}\n ],\n "digest": "{digest(golden)}"\n}}\n'


def digest(golden: Golden) -> str:
    """SHA-256 over the content of the golden."""
    return hashlib.sha256(msgspec.json.encode(golden)).hexdigest()


def parse_golden(text: str, *, path: str) -> Golden:
    """Parse the text of a golden file.

    Raises:
        GoldenError: the text is not a golden, has another format, or was edited by hand; names
            the file and the field.
    """
    raw = parse_json(text, path, GoldenError)
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise GoldenError(
            f"{path}: field 'format' is {number!r}, this release reads {FORMAT}: regenerate it "
            "with `conformance golden update`"
        )
    file = typed(raw, _File, path, GoldenError)
    golden = Golden(**{field: getattr(file, field) for field in Golden.__struct_fields__})
    _check(golden, path)
    if digest(golden) != file.digest:
        raise GoldenError(
            f"{path}: field 'digest' does not fit the content: the file was edited by hand or "
            "damaged; regenerate it with `conformance golden update`"
        )
    return golden


def load_golden(path: Path) -> Golden:
    """Read a golden file.

    Raises:
        GoldenError: as ``parse_golden``, or the file cannot be read.
    """
    return parse_golden(read_text(path, GoldenError), path=str(path))


def _check(golden: Golden, path: str) -> None:
    """Check what the types cannot: equal lengths, finite numbers, unique ids."""
    seen: set[str] = set()
    for recorded in golden.requests:
        name = recorded.request.request_id
        where = f"{path}: request {name!r}"
        if name in seen:
            raise GoldenError(f"{where} occurs twice")
        seen.add(name)
        steps = len(recorded.tokens)
        for field in ("margins", "noise", "top"):
            if len(getattr(recorded, field)) != steps:
                raise GoldenError(f"{where}: {field!r} has not one item for each of {steps} tokens")
        numbers = [*recorded.margins, *recorded.noise]
        numbers += [logprob for step in recorded.top for _, logprob in step]
        if not all(map(math.isfinite, numbers)):
            raise GoldenError(f"{where}: a number is not finite")
        for token, step in zip(recorded.tokens, recorded.top, strict=True):
            if token not in dict(step):
                raise GoldenError(f"{where}: 'top' lacks token {token} of its step")
    if not golden.requests:
        raise GoldenError(
            f"{path}: field 'requests' is empty: a golden without requests proves nothing"
        )


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


FOLDER = "golden"
BESIDE = frozenset({"README.md", "without.toml"})
"""Files that may be in the folder next to the libraries' folders."""
SUFFIX = ".json"


def golden_path(root: Path, library: str, family: str) -> Path:
    """The file of a library's family below ``root``."""
    return root / library / f"{family}{SUFFIX}"


def golden_files(root: Path) -> dict[tuple[str, str], Path]:
    """All golden files below ``root``, by library and family."""
    return {
        (path.parent.name, path.name.removesuffix(SUFFIX)): path
        for path in sorted(root.glob(f"*/*{SUFFIX}"))
    }


def strangers(root: Path) -> tuple[Path, ...]:
    """Files below ``root`` whose place or name is not a golden's, partial files included.

    Each path is judged by itself, as goldens may be written meanwhile.
    """
    return tuple(
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not _belongs(path.relative_to(root))
    )


def _belongs(path: Path) -> bool:
    if len(path.parts) == 1:
        return path.name in BESIDE
    return len(path.parts) == 2 and path.suffix == SUFFIX


def find_folder(given: Path | None, *, must_exist: bool = True) -> Path:
    """The folder of goldens: the given one, else the working directory's, else the project's.

    Raises:
        GoldenError: the folder does not exist, and ``must_exist``.
    """
    project = Path(__file__).parents[3] / FOLDER
    here = Path.cwd() / FOLDER
    found = given or (here if here.is_dir() or not project.is_dir() else project)
    if found.is_dir() or (not must_exist and not found.exists()):
        return found.absolute()
    raise GoldenError(
        f"{found}: no folder of goldens is there; `conformance golden update` makes one, "
        "--golden names another"
    )


NAME = "without.toml"


def load_without(root: Path) -> Mapping[tuple[str, str], str]:
    """The reason for each family, by library and name; empty if the file does not exist.

    Raises:
        GoldenError: the file is not valid; names the field.
    """
    path = root / NAME
    if not path.exists():
        return {}
    content = read_toml(path, GoldenError)
    found = {}
    for library, families in content.items():
        if not isinstance(families, dict):
            raise GoldenError(f"{path}: field {library!r} must be a table of families")
        for family, reason in families.items():
            if not isinstance(reason, str) or not reason:
                raise GoldenError(f"{path}: field '{library}.{family}' must give a reason")
            found[library, family] = reason
    return found
