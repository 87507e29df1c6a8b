"""The lines of a trace file, and its reader, which checks each line without the vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from conformance.core.errors import VectorsError
from conformance.core.plain_text import is_plain
from conformance.core.trace import FinishReason
from conformance.core.user_files import MOST_BYTES, parse_json, read_text
from conformance.report.jsonl import DIALECT, cleaned
from conformance.tools.golden.format import Golden
from conformance.tools.vectors.reading import Manifest, ScenarioFile


@dataclass(frozen=True)
class Line:
    """A record and its place: ``"FILE, line N"``."""

    where: str
    record: Record


@dataclass(frozen=True)
class Run:
    """One run of one schedule: its header, then all events."""

    where: str
    header: Header
    lines: tuple[Line, ...]

    @property
    def forced(self) -> bool:
        """Whether the engine was fed given tokens."""
        return any(isinstance(item.record, Token) and item.record.forced for item in self.lines)


def read_trace(path: Path) -> tuple[Run, ...]:
    """Read the runs of a trace file.

    Raises:
        VectorsError: the file cannot be read, a line is not a record, or a run is incomplete; names
            file, line and field.
    """
    text = read_text(path, VectorsError, most=MOST_BYTES)
    runs = tuple(_runs(path, text))
    if not runs:
        raise VectorsError(f"{path}: the trace is empty: it has no run to judge")
    return runs


def _runs(path: Path, text: str) -> Iterator[Run]:
    lines = text.split("\n")
    begun: _Begun | None = None
    where = f"{path}"
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _record(line, where, last=number == len(lines))
        if isinstance(record, Header):
            if begun is not None:
                raise VectorsError(
                    f"{where}: a header, but the run of {begun.where} has no 'end' yet"
                )
            _check_format(line, where)
            begun = _Begun(where, record)
        elif begun is None:
            raise VectorsError(f"{where}: a run begins with a header, this is {_name(record)!r}")
        else:
            begun.add(Line(where, record))
            if isinstance(record, End | Error):
                yield Run(begun.where, begun.header, tuple(begun.lines))
                begun = None
    if begun is not None:
        raise VectorsError(
            f"{where}: the run of {begun.where} has no 'end': the trace is truncated"
        )


def _record(line: str, where: str, *, last: bool) -> Record:
    try:
        record: Record = msgspec.json.decode(line, type=Record)
    except msgspec.ValidationError as error:
        _check_format(line, where)
        raise VectorsError(f"{where}: {error}") from error
    except msgspec.MsgspecError as error:
        if last:
            raise VectorsError(f"{where}: the last line is not whole: {error}") from error
        if _not_finite(line):
            raise VectorsError(
                f"{where}: a number is not finite, which JSON does not allow: write null"
            ) from error
        raise VectorsError(f"{where}: not JSON: {error}") from error
    except RecursionError as error:
        raise VectorsError(f"{where}: not read: it is nested too deep") from error
    _check_names(record, where)
    return record


def _check_names(record: Record, where: str) -> None:
    """Check names, which are printed: they must not contain invisible characters."""
    values = (getattr(record, field) for field in record.__struct_fields__)
    if not all(is_plain(value) for value in values if isinstance(value, str)):
        raise VectorsError(f"{where}: a text holds characters that cannot be seen")


def _not_finite(line: str) -> bool:
    """Whether the line is JSON except for NaN and Infinity, which some writers emit."""
    met: list[str] = []
    try:
        json.loads(line, parse_constant=met.append)
    except (ValueError, RecursionError):
        return False
    return bool(met)


def _check_format(line: str, where: str) -> None:
    """Check a header's format before all else, since another format may have other fields."""
    raw = parse_json(line, where, VectorsError)
    if not isinstance(raw, dict) or raw.get("record") != "header":
        return
    if raw.get("format") != FORMAT:
        raise VectorsError(
            f"{where}: field 'format' is {raw.get('format')!r}, this release reads {FORMAT}"
        )


def _name(record: Record) -> str:
    return str(type(record).__struct_config__.tag)


@dataclass
class _Begun:
    """A run that is being read, and the state with which its next lines must agree."""

    where: str
    header: Header
    lines: list[Line] = field(default_factory=list)
    _steps: dict[str, int] = field(default_factory=dict)
    _occurred: set[tuple[str, str]] = field(default_factory=set)
    _forced: bool | None = None

    def add(self, line: Line) -> None:
        """Add the line if it agrees with the previous ones."""
        record = line.record
        if isinstance(record, Token):
            self._check_token(record, line.where)
        elif isinstance(record, Finish):
            self._once("finish", (record.request_id,), line.where)
        elif isinstance(record, Arrived | Removed):
            self._once(_name(record), record.request_ids, line.where)
        self.lines.append(line)

    def _once(self, what: str, names: tuple[str, ...], where: str) -> None:
        for name in names:
            if (what, name) in self._occurred:
                raise VectorsError(f"{where}: a second {what!r} of request {name!r} in this run")
            self._occurred.add((what, name))

    def _check_token(self, token: Token, where: str) -> None:
        name = token.request_id
        due = self._steps.get(name, 0)
        if token.step > due:
            raise VectorsError(
                f"{where}: field 'step' of request {name!r} is {token.step}, but its step {due} "
                "is missing"
            )
        if token.step < due:
            raise VectorsError(
                f"{where}: field 'step' of request {name!r} is {token.step}, which this run "
                "already has"
            )
        self._steps[name] = due + 1
        if self._forced is not None and self._forced is not token.forced:
            raise VectorsError(
                f"{where}: field 'forced' is {json.dumps(token.forced)}, but not in the tokens "
                "before: a run is forced or free as a whole"
            )
        self._forced = token.forced
        if token.top is not None:
            ids = [token_id for token_id, _ in token.top]
            if not ids:
                raise VectorsError(f"{where}: field 'top' is empty: leave it out")
            if len(ids) > len(set(ids)):
                twice = next(i for i in ids if ids.count(i) > 1)
                raise VectorsError(f"{where}: field 'top' has token {twice} twice")


# Published as ``schema/trace.schema.json``. Each run of a schedule begins with a ``header`` and
# ends with an ``end`` or an ``error``; in between are the events in order.
FORMAT = 1
"""Version of the trace format; a header with another number is refused."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Shown = tuple[Count, float | None]


class _Record(msgspec.Struct, frozen=True, tag_field="record", forbid_unknown_fields=True):
    """Base of all records; the field ``record`` says which one a line is."""


class Header(_Record, frozen=True, tag="header"):
    """A run begins: which engine plays which schedule of the vectors.

    ``device`` and ``versions`` are copied to results; ``dtype`` must be that of the vectors.
    """

    format: int
    engine: Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]+$")]
    device: str
    dtype: str
    family: str
    scenario: str
    schedule: str
    versions: dict[str, str] = {}


class Arrived(_Record, frozen=True, tag="arrived"):
    """Requests were handed to the engine. Those that wait for nothing need no such record."""

    request_ids: tuple[str, ...]


class Removed(_Record, frozen=True, tag="removed"):
    """Requests were cancelled."""

    request_ids: tuple[str, ...]


class Token(_Record, frozen=True, tag="token"):
    """The engine gave out a token.

    ``step`` counts the output tokens of its request from 0. ``top`` are the most likely tokens
    with their logprobs (nats), as many as the engine likes to show, from which the token was
    chosen; a logprob that is not finite is null. ``forced`` means that the engine was then fed the
    golden's token and chose none itself. ``row`` is the request's row on the batch axis.
    """

    request_id: str
    step: Count
    token: Count
    top: tuple[Shown, ...] | None = None
    forced: bool = False
    row: int | None = None


class Finish(_Record, frozen=True, tag="finish"):
    """A request ended by ``max_tokens`` (length) or by a stop sequence (stop)."""

    request_id: str
    reason: FinishReason


class Error(_Record, frozen=True, tag="error"):
    """The engine failed, and the run ends here.

    ``type`` and ``message`` are the exception's, ``where`` a file and line, ``doing`` the
    call. ``unsupported`` means that the engine reports that it does not support this.
    """

    type: str
    message: str
    where: str = "?"
    doing: str = "?"
    unsupported: bool = False


class End(_Record, frozen=True, tag="end"):
    """The run is over. ``cache_bytes`` is what caches still hold then, where the engine knows."""

    cache_bytes: Count | None = None


Record = Header | Arrived | Removed | Token | Finish | Error | End


# The published JSON Schemas: for the lines of a trace, and for the files of exported vectors ------

TRACE, VECTORS = "trace.schema.json", "vectors.schema.json"


def derived_schema(name: str) -> dict[str, Any]:
    """The schema derived from the records; a test compares the published one with it."""
    made = {TRACE: _of_trace, VECTORS: _of_vectors}[name]
    return {"$schema": DIALECT, **cleaned(made())}


def schema_text(name: str) -> str:
    """``derived_schema`` as the text of the published file."""
    return json.dumps(derived_schema(name), indent=2) + "\n"


def _of_trace() -> dict[str, Any]:
    return {
        "title": "mlx-conformance trace",
        "description": "One line of a trace that `conformance golden judge` judges.",
        **msgspec.json.schema(Record),
    }


def _of_vectors() -> dict[str, Any]:
    found, definitions = msgspec.json.schema_components(
        (Manifest, ScenarioFile, Golden), ref_template="#/$defs/{name}"
    )
    return {
        "title": "mlx-conformance vectors",
        "description": "manifest.json, FAMILY/SCENARIO.json or FAMILY/golden.json, as "
        "`conformance golden export` writes it.",
        "anyOf": list(found),
        "$defs": definitions,
    }
