"""The first line of a result file: the run that its results are from, and their planned number."""

from __future__ import annotations

import re

import msgspec

from conformance.core.errors import ResultError
from conformance.core.user_files import typed_json
from conformance.core.verdict import SCHEMA

_HEAD = 20  # the first characters, in which a header can be recognised


class RunHeader(msgspec.Struct, frozen=True, tag_field="record", tag="run"):
    """The first line of a result file: the plan of the run. Older files have none.

    Attributes:
        planned: the number of cases; as many lines follow, unless the run was stopped.
        stopped: why the run may have fewer results than planned (``-x``); empty if it may not.
        schema: format version of the lines that follow.
        devices: the GPUs that its workers used in turn, as chosen by ``--devices``.
        tier: how much of the ladder is run; empty if unknown.
        shard: the part of a whole run: ``2/4``, or ``1,2/4`` if two are joined; empty for all of
            it.
        run: the same for all shards of a run: a hash of its selection, settings and versions.
        started: start time in UTC: ``2026-11-22T14:10:28Z``.
    """

    planned: int
    stopped: str = ""
    schema: int = SCHEMA
    devices: tuple[str, ...] = ()
    tier: str = ""
    shard: str = ""
    run: str = ""
    started: str = ""


_MOST_CASES = 10**9  # of a run; a whole run has some 10,000


def decode_header(line: str, *, where: str = "result") -> RunHeader | None:
    """The header, if the line is a header.

    Raises:
        ResultError: the header is malformed, or has another schema version.
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
