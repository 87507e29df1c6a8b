"""The first line of a result file: of which run its results are, and how many there should be."""

from __future__ import annotations

import re

import msgspec

from conformance.core.errors import ResultError
from conformance.core.user_files import typed_json
from conformance.core.verdict import SCHEMA

_HEAD = 20  # characters in which a header says that it is one


class RunHeader(msgspec.Struct, frozen=True, tag_field="record", tag="run"):
    """The first line of a result file: what the run was to play. Files of before have none.

    Attributes:
        planned: the number of cases; so many lines follow, unless the run was stopped.
        stopped: why the run may have fewer results than were planned: ``-x``; empty if it may not.
        schema: of the lines that follow.
        devices: the GPUs that its workers took in turn, as ``--devices`` chose them.
        tier: how much of the ladder is played; empty if that is not known.
        shard: the part of a whole run: ``2/4``, or ``1,2/4`` of two joined; empty for all of it.
        run: the same for all shards of a run: a hash of its selection, settings and versions.
        started: when, in UTC: ``2026-11-22T14:10:28Z``.
    """

    planned: int
    stopped: str = ""
    schema: int = SCHEMA
    devices: tuple[str, ...] = ()
    tier: str = ""
    shard: str = ""
    run: str = ""
    started: str = ""


def encode_header(header: RunHeader) -> str:
    """The header as one line of JSON, without the newline."""
    return msgspec.json.encode(header).decode()


_MOST_CASES = 10**9  # of a run; a whole one has some 10,000


def decode_header(line: str, *, where: str = "result") -> RunHeader | None:
    """The header, if the line is one.

    Raises:
        ResultError: it is a header that is malformed, or of another schema.
    """
    if '"record"' not in line[:_HEAD]:
        return None
    header = typed_json(line, RunHeader, where, ResultError)
    if header.schema != SCHEMA:
        raise ResultError(
            f"{where}: field 'schema' is {header.schema}, this release reads {SCHEMA}"
        )
    if not 0 <= header.planned <= _MOST_CASES:
        raise ResultError(f"{where}: field 'planned' is {header.planned}")
    if header.shard and not re.fullmatch(r"\d{1,4}(,\d{1,4})*/\d{1,4}", header.shard, re.A):
        raise ResultError(f"{where}: field 'shard' is {header.shard!r}, which is no shard")
    return header
